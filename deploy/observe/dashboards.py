# ruff: noqa: INP001  beside the script that writes the files, no package
"""The dashboards: the question that each answers, and its panels. ``$__rate_interval``, ``$model``, ``$device`` are
Grafana's.
"""

from typing import Final, NamedTuple

JOBS: Final = "gateway|worker|console|controller|projector|outbound"
"""Ours: a Prometheus of a cluster has others too."""
OR_0: Final = " or on() vector(0)"
"""What is nowhere is 0."""
RARE: Final = "30m"
"""How far quantiles look back of what happens now and then."""


class Panel(NamedTuple):
    """One graph. lines: PromQL by its legend. unit: as Grafana calls it."""

    title: str
    unit: str
    lines: dict[str, str]


class Dashboard(NamedTuple):
    """variable: a label that a person chooses, and the metric that has its values; empty = none."""

    name: str
    question: str
    variable: tuple[str, str] | tuple[()]
    panels: tuple[Panel, ...]


def _rate(counter: str, by: str = "") -> str:
    rate = f"rate({counter}[$__rate_interval])"
    return f"sum by ({by}) ({rate})" if by else f"sum({rate})"


def _quantiles(histogram: str, labels: str = "", over: str = "$__rate_interval") -> dict[str, str]:
    buckets = f"sum by (le) (rate({histogram}_bucket{labels}[{over}]))"
    return {f"p{round(share * 100)}": f"histogram_quantile({share}, {buckets})" for share in (0.5, 0.95, 0.99)}


def _share(what: str, labels: str = "") -> str:
    spent, held = (f"rate(signalbox_device_{name}_seconds_total{labels}[$__rate_interval])" for name in (what, "held"))
    return f"sum by (device) ({spent}) / (sum by (device) ({held}) > 0)"


_M: Final = '{model=~"$model"}'
_D: Final = '{device=~"$device"}'

DASHBOARDS: Final = (
    Dashboard(
        "fleet",
        "Does the fleet keep up with what is asked of it?",
        (),
        (
            Panel(
                "Jobs accepted and ended",
                "ops",
                {
                    "accepted": _rate("signalbox_jobs_accepted_total"),
                    "{{state}}": _rate("signalbox_worker_jobs_ended_total", "state"),
                },
            ),
            Panel(
                "Jobs that wait and run",
                "short",
                {
                    "wait": "sum(max by (model) (signalbox_queue_jobs))",
                    "run": "sum(max by (model) (signalbox_queue_running_jobs))",
                },
            ),
            Panel(
                "Since the oldest waiting job was accepted",
                "s",
                {
                    "{{model}}": "topk(5, max by (model) (signalbox_queue_oldest_seconds))",
                },
            ),
            Panel("What a job waits", "s", _quantiles("signalbox_worker_wait_seconds")),
            Panel("What of it is for a device's lease", "s", _quantiles("signalbox_worker_lease_seconds")),
            Panel("Share of its held time that a device computes", "percentunit", {"{{device}}": _share("computing")}),
            Panel(
                "Devices that shall have workers, where something scales",
                "short",
                {
                    "wanted": f"sum(signalbox_scaling_devices_wanted){OR_0}",
                    "asked for": f"sum(signalbox_scaling_devices_asked){OR_0}",
                    "have some": f"sum(signalbox_scaling_devices_actual){OR_0}",
                },
            ),
            Panel("Devices that are held", "short", {"held": f"count(signalbox_lease_token > 0){OR_0}"}),
            Panel(
                "Versions of models on workers", "short", {"{{state}}": "sum by (state) (signalbox_worker_versions)"}
            ),
            Panel("Programs that answer", "short", {"{{job}}": f'sum by (job) (up{{job=~"{JOBS}"}})'}),
            Panel(
                "Latest beats of event loops",
                "s",
                {
                    "{{job}} p99": f"histogram_quantile(0.99, {_rate('signalbox_loop_lag_seconds_bucket', 'job, le')})",
                },
            ),
        ),
    ),
    Dashboard(
        "model",
        "What does a call of this model spend its time on?",
        ("model", "signalbox_worker_jobs_ended_total"),
        (
            Panel("Jobs ended", "ops", {"{{state}}": _rate(f"signalbox_worker_jobs_ended_total{_M}", "state")}),
            Panel("Jobs that wait", "short", {"{{model}}": f"max by (model) (signalbox_queue_jobs{_M})"}),
            Panel(
                "Since the oldest was accepted",
                "s",
                {
                    "{{model}}": f"max by (model) (signalbox_queue_oldest_seconds{_M})",
                },
            ),
            Panel("Wait", "s", _quantiles("signalbox_worker_wait_seconds", _M)),
            Panel("Run of a batch", "s", _quantiles("signalbox_worker_run_seconds", _M)),
            Panel("Jobs in a batch", "short", _quantiles("signalbox_worker_batch_jobs", _M)),
            Panel("Load of a version", "s", _quantiles("signalbox_worker_load_seconds", _M, RARE)),
            Panel("Fetch of a version", "s", _quantiles("signalbox_worker_cache_fetch_seconds", _M, RARE)),
            Panel(
                "Bytes fetched", "Bps", {"{{model}}": _rate(f"signalbox_worker_cache_fetched_bytes_total{_M}", "model")}
            ),
            Panel(
                "In memory",
                "bytes",
                {
                    "{{model}} {{version}}": f"sum by (model, version) (signalbox_worker_resident_bytes{_M})",
                },
            ),
        ),
    ),
    Dashboard(
        "device",
        "What does this device do with its time and memory?",
        ("device", "signalbox_device_budget_bytes"),
        (
            Panel(
                "Share of its held time",
                "percentunit",
                {
                    "{{device}} computes": _share("computing", _D),
                    "{{device}} loads": _share("loading", _D),
                },
            ),
            Panel(
                "Share of all time that it is held",
                "percentunit",
                {
                    "{{device}}": _rate(f"signalbox_device_held_seconds_total{_D}", "device"),
                },
            ),
            Panel(
                "Memory",
                "bytes",
                {
                    "{{device}} in use": f"max by (device) (signalbox_device_used_bytes{_D})",
                    "{{device}} versions": f"max by (device) (signalbox_device_resident_bytes{_D})",
                    "{{device}} may take": f"max by (device) (signalbox_device_budget_bytes{_D})",
                },
            ),
            Panel("Holds of a lease", "s", _quantiles("signalbox_worker_hold_seconds", over=RARE)),
            Panel("Workers that hold a lease", "short", {"{{instance}}": "signalbox_lease_token > bool 0"}),
            Panel("Until a guard would end its runner", "s", {"{{instance}}": "signalbox_lease_slack_seconds"}),
            Panel("Jobs in flight", "short", {"{{instance}}": "signalbox_worker_jobs_in_flight"}),
            Panel("Disk cache", "bytes", {"{{instance}}": "signalbox_worker_cache_bytes"}),
        ),
    ),
    Dashboard(
        "callers",
        "What do callers get, and how soon?",
        (),
        (
            Panel("Answers", "ops", {"{{hook}} {{status}}": _rate("signalbox_gateway_answers_total", "hook, status")}),
            Panel("Refusals", "ops", {"{{reason}}": _rate("signalbox_refused_total", "reason")}),
            Panel("Keys refused", "ops", {"{{why}}": _rate("signalbox_keys_refused_total", "why")}),
            Panel("Callers that wait for a result", "short", {"{{instance}}": "signalbox_callers_waiting"}),
            Panel("Connections", "short", {"{{job}} {{instance}}": "signalbox_http_connections"}),
            Panel(
                "Bytes of fronts",
                "Bps",
                {
                    "{{front}} {{direction}}": _rate("signalbox_front_bytes_total", "front, direction"),
                },
            ),
            Panel(
                "Jobs accepted", "ops", {"{{model}}": f"topk(10, {_rate('signalbox_jobs_accepted_total', 'model')})"}
            ),
            Panel(
                "Ends that the outbound program has yet to look at",
                "short",
                {
                    "records": "signalbox_outbound_follower_lag",
                },
            ),
            Panel(
                "Attempts at deliveries of webhooks",
                "ops",
                {"{{outcome}}": _rate("signalbox_webhook_attempts_total", "outcome") + OR_0},
            ),
            Panel("Deliveries that wait for another try", "short", {"deliveries": "signalbox_webhook_waiting"}),
            Panel("Lines of batches", "ops", {"{{file}}": _rate("signalbox_batch_lines_total", "file") + OR_0}),
            Panel(
                "Items in queues",
                "short",
                {
                    "{{queue}} {{side}}": f"topk(5, signalbox_queue_side_items){OR_0}",
                    "dead": f"sum(signalbox_queue_side_dead_items){OR_0}",
                },
            ),
            Panel(
                "Since the oldest item of a queue was put",
                "s",
                {
                    "{{queue}} {{side}}": "topk(5, time() - (signalbox_queue_side_oldest_timestamp_seconds != 0))"
                    + OR_0,
                },
            ),
            Panel(
                "Answer, once key and body are good",
                "s",
                {
                    "p95": "histogram_quantile(0.95, " + _rate("signalbox_gateway_answer_seconds_bucket", "le") + ")",
                },
            ),
        ),
    ),
    Dashboard(
        "nats",
        "How near is NATS to its bounds?",
        (),
        (
            Panel(
                "Streams, of their limits",
                "percentunit",
                {
                    "{{stream}}": "max by (stream) (signalbox_stream_bytes / signalbox_stream_limit_bytes)",
                },
            ),
            Panel("Messages", "short", {"{{stream}}": "max by (stream) (signalbox_stream_messages)"}),
            Panel("Consumers", "short", {"{{stream}}": "max by (stream) (signalbox_stream_consumers)"}),
            Panel(
                "Replicas that lag or are away",
                "short",
                {
                    "{{stream}}": "topk(8, max by (stream) (signalbox_stream_late_replicas))",
                    "queues: {{of}}": "max by (of) (signalbox_queues_late_replicas)",
                },
            ),
            Panel("Answer about all streams", "s", {"controller": "max(signalbox_nats_answer_seconds)"}),
            Panel("Streams that store nothing", "short", {"{{job}}": "max by (job) (signalbox_nats_stalled_streams)"}),
            Panel("Ends of jobs committed", "ops", {"{{outcome}}": _rate("signalbox_worker_commits_total", "outcome")}),
            Panel("Messages of ended jobs removed", "ops", {"JOBS": _rate("signalbox_reconciler_jobs_removed_total")}),
        ),
    ),
    Dashboard(
        "console",
        "Does the console keep up, and whom does it turn away?",
        (),
        (
            Panel("Rows", "short", {"{{table}}": "topk(8, max by (table) (signalbox_console_rows))"}),
            Panel("Database", "bytes", {"all tables": "max(signalbox_console_database_bytes)"}),
            Panel(
                "Requests answered with an error",
                "ops",
                {
                    "{{route}} {{status}}": _rate("signalbox_console_refused_total", "route, status"),
                },
            ),
            Panel("Websockets of foreign pages", "ops", {"refused": _rate("signalbox_console_origin_refused_total")}),
            Panel(
                "Listings of repositories that failed",
                "ops",
                {
                    "failed": _rate("signalbox_console_repository_failures_total"),
                },
            ),
            Panel(
                "Open records, and delayed jobs",
                "short",
                {
                    "open": "max(signalbox_reconciler_open)",
                    "delayed": "max(signalbox_reconciler_delayed)",
                },
            ),
            Panel(
                "Bytes to and from browsers",
                "Bps",
                {
                    "{{direction}}": _rate('signalbox_front_bytes_total{front="console"}', "direction"),
                },
            ),
            Panel("Connections of browsers", "short", {"{{instance}}": 'signalbox_http_connections{job="console"}'}),
        ),
    ),
)
