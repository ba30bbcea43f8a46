# Which servers there are, and how rows are routed to them. The tasks of a run with `split` are known only after it.
checkpoint environment:
    input:
        topology=topology_file,
    output:
        below("environment.json"),
    log:
        below("logs/environment.log"),
    conda:
        "../../envs/rollmake.yaml"
    params:
        environment=environment,
    shell:
        "exec rollmake environment --environment {params.environment:q} --output {output:q} --log {log:q}"


# Without such a run it need not be one, and a dry run of many shards is planned once instead of twice.
rules.environment.rule.is_checkpoint = any(run["split"] is not None for run in RUNS.values())
