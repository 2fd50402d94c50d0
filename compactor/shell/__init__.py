"""How a run is started and shown: the Spark job, progress, metrics, a picture of past runs."""
