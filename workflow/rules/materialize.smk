# Which rollouts are owed, and in which shard.
rule materialize:
    input:
        tasks=task_files,
        prompt=prompt_file,
        skills=skill_files,
        environment=below("environment.json"),
    output:
        rows=below("rollouts_materialized_inputs.jsonl"),
        plan=below("plan.json"),
        table=below("plan.parquet"),
    log:
        below("logs/materialize.log"),
    wildcard_constraints:
        run=any_of(run for run in RUNS if run not in EXTERNAL),
    conda:
        "../../envs/rollmake.yaml"
    params:
        tasks=input_words,
        options=result_flags("materialize"),
    shell:
        "exec rollmake materialize {params.tasks} --environment-file {input.environment:q}"
        " --output {output.rows:q} --plan {output.plan:q} {params.options} --log {log:q}"
