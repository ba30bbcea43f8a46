# The run fails here, after everything else is written, unless every rollout that is owed has a result.
rule check:
    input:
        reported,
        coverage=below("coverage.json"),
        report=below("report.html"),
    output:
        below("complete.json"),
    log:
        below("logs/check.log"),
    conda:
        "../../envs/rollmake.yaml"
    shell:
        "exec rollmake check --coverage {input.coverage:q} --output {output:q} --log {log:q}"
