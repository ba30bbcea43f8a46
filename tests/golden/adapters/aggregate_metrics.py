from rollmake.core.metrics import aggregate_metrics


def run(input: dict, topology: dict | None):
    return aggregate_metrics(input["rows"])
