from rollmake.core.passk import ANY_OF_K, AVERAGE_OF_K, highest_k, pass_at_k, subset_metrics


def run(input: dict, topology: dict | None):
    tasks, answer_key, subset_key = input["tasks"], input["answer_key"], input["subset_key"]
    metrics = pass_at_k(tasks, answer_key=answer_key)
    found = {
        "metrics": metrics,
        "highest_pass_k": highest_k(metrics, ANY_OF_K),
        "highest_avg_of_k": highest_k(metrics, AVERAGE_OF_K),
    }
    return found | ({"subsets": subset_metrics(tasks, subset_key, answer_key=answer_key)} if subset_key else {})
