# One page with the score, its coverage, and where to look next.
rule report:
    input:
        reported,
    output:
        below("report.html"),
    log:
        below("logs/report.log"),
    conda:
        "../../envs/rollmake.yaml"
    params:
        run=lambda wildcards: f"{RESULTS}/{wildcards.run}",
    shell:
        "exec rollmake report --run {params.run:q} --output {output:q} --log {log:q}"
