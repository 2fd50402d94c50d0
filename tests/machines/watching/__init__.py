"""What the tests of metrics, alarms and dashboards share."""
