# ruff: noqa: INP001  beside the script that writes the files, no package
"""The alert rules: what is wrong, with which series each fires or stays silent, and where it stands what to do."""

from typing import Final, NamedTuple

LINK_BYTES_S: Final = 10e9 / 8
"""What the network of a machine of the edge carries a second, each way: 10 Gbit/s. Change it, and run generate.py."""
WARNING, CRITICAL = "warning", "critical"
ONE: Final = "1x80"
NONE: Final = "0x80"
STILL: Final = "70x80"
Series = dict[str, str]


class Alert(NamedTuple):
    """One rule. says: what is so, in a sentence. heading: below PAGE's "What to do at an alarm".

    fires, silent: series by name and labels, as promtool writes their values. begins: likewise, with which it fires
    too; of a counter whose series begins with what is counted.
    """

    name: str
    expr: str
    lasts: str
    severity: str
    says: str
    heading: str
    fires: Series
    silent: Series
    begins: Series = {}  # noqa: RUF012  of a NamedTuple, which nobody changes


def _rises(name: str, metric: str, over: str, most: int, severity: str, says: str, heading: str) -> Alert:
    """A counter that rises by more than ``most`` in a time. It stays silent where it stands still.

    A counter with labels has no series before the first is counted, so that ``increase`` never sees that one: of a
    series that came while Prometheus read the program, everything counts.
    """
    is_new = f"({metric} unless {metric} offset {over}) > {most} and on (job, instance) up offset {over}"
    expr = f"increase({metric}[{over}]) > {most} or {is_new}"
    name_of, _, labels = metric.replace('=~".*', '="edge').partition("{")
    old, new = (f'{name_of}{{instance="{instance}",{labels or "}"}' for instance in ("old", "new"))
    stays, comes = {old: STILL, 'up{instance="old"}': ONE}, {new: f"_x75 {STILL}", 'up{instance="new"}': f"_x75 {ONE}"}
    return Alert(
        name,
        expr,
        "0s",
        severity,
        says,
        heading,
        fires={old: f"0+{most + 1}x80"},
        silent=stays | comes,
        begins={old: f"_x75 {most + 1}x5", 'up{instance="old"}': ONE},
    )


_NATS: Final = "NATS has little room, or stores nothing"
_LOST: Final = "Accepted jobs or ends were lost"
_DEVICE: Final = "A device is in doubt"
_QUEUE: Final = "Jobs wait, or fail"
_EDGE: Final = "The edge is at a bound"
_GUESS: Final = "Somebody tries doors"
_PROGRAM: Final = "A program is down, stands or errs"
_FILES: Final = "Files of models do not come"
_HOOKS: Final = "Results do not go out"
_ITEMS: Final = "Items of queues wait, or are dead"

ALERTS: Final = (
    Alert(
        "ProgramIsDown",
        "up{endpoint!~'metrics-.+'} == 0",  # a host's worker that is not wanted now serves none, and its agent does
        "2m",
        CRITICAL,
        "Prometheus cannot read {{ $labels.instance }}.",
        _PROGRAM,
        {'up{job="worker",instance="a:9100"}': NONE},
        {
            'up{job="worker",instance="a:9100"}': ONE,
            'up{job="worker",instance="b:9101",endpoint="metrics-worker"}': NONE,
        },
    ),
    _rises(
        "ErrorNobodyForesaw",
        "signalbox_unforeseen_errors_total",
        "10m",
        0,
        WARNING,
        "An unexpected error in {{ $labels.instance }}: {{ $labels.event }}.",
        _PROGRAM,
    ),
    _rises(
        "LoopStands",
        "signalbox_loop_stalls_total",
        "5m",
        5,
        WARNING,
        "The event loop of {{ $labels.instance }} stands still again and again.",
        _PROGRAM,
    ),
    Alert(
        "StreamNearlyFull",
        "signalbox_stream_bytes / signalbox_stream_limit_bytes > 0.8",
        "5m",
        CRITICAL,
        "{{ $labels.stream }} is more than four fifths full.",
        _NATS,
        {'signalbox_stream_bytes{stream="JOBS"}': "90x80", 'signalbox_stream_limit_bytes{stream="JOBS"}': "100x80"},
        {'signalbox_stream_bytes{stream="JOBS"}': "70x80", 'signalbox_stream_limit_bytes{stream="JOBS"}': "100x80"},
    ),
    Alert(
        "DiskOfNatsFills",
        'node_filesystem_avail_bytes{mountpoint="/data"} / node_filesystem_size_bytes{mountpoint="/data"} < 0.2',
        "1m",
        CRITICAL,
        "The disk of NATS on {{ $labels.instance }} has less than a fifth left.",
        _NATS,
        {
            'node_filesystem_avail_bytes{mountpoint="/data"}': "10x80",
            'node_filesystem_size_bytes{mountpoint="/data"}': "100x80",
        },
        {
            'node_filesystem_avail_bytes{mountpoint="/data"}': "30x80",
            'node_filesystem_size_bytes{mountpoint="/data"}': "100x80",
        },
    ),
    Alert(
        "NatsStoresNothing",
        "max(signalbox_nats_stalled_streams) > 0",
        "0s",
        CRITICAL,
        "NATS answers and stores nothing.",
        _NATS,
        {"signalbox_nats_stalled_streams": ONE},
        {"signalbox_nats_stalled_streams": NONE},
    ),
    _rises(
        "DiskOfNatsIsFull",
        'signalbox_refused_for_room_total{reason="disk"}',
        "2m",
        0,
        CRITICAL,
        "Jobs are refused: the disk of NATS is at its reserve.",
        _NATS,
    ),
    Alert(
        "ReplicaIsLate",
        "max by (stream) (signalbox_stream_late_replicas) > 0",
        "5m",
        WARNING,
        "A replica of {{ $labels.stream }} lags or is away.",
        _NATS,
        {'signalbox_stream_late_replicas{stream="STATE"}': ONE},
        {'signalbox_stream_late_replicas{stream="STATE"}': NONE},
    ),
    Alert(
        "ReplicaOfQueuesIsLate",
        "max by (of) (signalbox_queues_late_replicas) > 0",
        "5m",
        WARNING,
        "{{ $value }} replicas of streams of queues lag or are away ({{ $labels.of }}).",
        _NATS,
        {'signalbox_queues_late_replicas{of="queues"}': ONE},
        {'signalbox_queues_late_replicas{of="queues"}': NONE},
    ),
    _rises(
        "AcceptedJobLost",
        "signalbox_reconciler_lost_total",
        "10m",
        0,
        CRITICAL,
        "A job of {{ $labels.model }} failed, as the queue had lost it with its input.",
        _LOST,
    ),
    _rises(
        "JobQueuedAgain",
        "signalbox_reconciler_requeued_total",
        "10m",
        0,
        WARNING,
        "The queue had lost a job of {{ $labels.model }}; it was queued again.",
        _LOST,
    ),
    _rises(
        "EndsWentUnsent",
        "signalbox_reconciler_ends_unsent_total",
        "10m",
        0,
        CRITICAL,
        "Records of ended jobs went before the outbound program had passed them.",
        _LOST,
    ),
    _rises(
        "EndsLost",
        "signalbox_outbound_ends_lost_total",
        "10m",
        0,
        WARNING,
        "Ends of jobs could not be written: {{ $labels.reason }}.",
        _LOST,
    ),
    Alert(
        "EndsComeLate",
        "signalbox_outbound_follower_lag > 10000",
        "5m",
        WARNING,
        "The outbound program has more than 10 000 records to look at.",
        _HOOKS,
        {"signalbox_outbound_follower_lag": "20000x80"},
        {"signalbox_outbound_follower_lag": "9000x80"},
    ),
    Alert(
        "WebhooksFail",
        "signalbox_webhook_waiting > 500",  # of one webhook at most 1000 wait
        "10m",
        WARNING,
        "More than 500 deliveries of webhooks failed and wait for another try.",
        _HOOKS,
        {"signalbox_webhook_waiting": "1000x80"},
        {"signalbox_webhook_waiting": "400x80"},
    ),
    Alert(
        "QueueIsNotRead",
        "time() - (signalbox_queue_side_oldest_timestamp_seconds != 0) > 3600",
        "5m",
        WARNING,
        "The oldest item of the {{ $labels.side }} of {{ $labels.queue }} has waited for an hour.",
        _ITEMS,
        {'signalbox_queue_side_oldest_timestamp_seconds{queue="orders",side="sink"}': "-4000x80"},
        {'signalbox_queue_side_oldest_timestamp_seconds{queue="orders",side="sink"}': NONE},
    ),
    Alert(
        "DeadItems",
        "signalbox_queue_side_dead_items > 0",
        "10m",
        WARNING,
        "Items of the {{ $labels.side }} of {{ $labels.queue }} were given up.",
        _ITEMS,
        {'signalbox_queue_side_dead_items{queue="orders",side="source"}': ONE},
        {'signalbox_queue_side_dead_items{queue="orders",side="source"}': NONE},
    ),
    Alert(
        "QueuesNearlyFull",
        "signalbox_queues_stored_bytes / signalbox_queues_limit_bytes > 0.8",
        "5m",
        CRITICAL,
        "Queues have taken more than four fifths of their room ({{ $labels.of }}).",
        _ITEMS,
        {'signalbox_queues_stored_bytes{of="rear"}': "90x80", 'signalbox_queues_limit_bytes{of="rear"}': "100x80"},
        {'signalbox_queues_stored_bytes{of="rear"}': "70x80", 'signalbox_queues_limit_bytes{of="rear"}': "100x80"},
    ),
    Alert(
        "ServiceOfQueueStopped",
        "max by (reason) (signalbox_queue_services_stopped) > 0",
        "10m",
        WARNING,
        "{{ $value }} services of queues take no items: {{ $labels.reason }}.",
        _ITEMS,
        {'signalbox_queue_services_stopped{reason="sink_full"}': ONE},
        {'signalbox_queue_services_stopped{reason="sink_full"}': NONE},
    ),
    Alert(
        "LeaseAtRisk",
        "signalbox_lease_slack_seconds < 4 != 0",  # 0 = no lease
        "0s",
        CRITICAL,
        "The guard of {{ $labels.instance }} ends its runner in {{ $value }} s.",
        _DEVICE,
        {"signalbox_lease_slack_seconds": "3x80"},
        {"signalbox_lease_slack_seconds": NONE},
    ),
    _rises(
        "LeaseLost",
        'signalbox_worker_holds_total{end="lost"}',
        "10m",
        0,
        WARNING,
        "{{ $labels.instance }} lost its device's lease.",
        _DEVICE,
    ),
    _rises(
        "DeviceLeftAlone",
        "signalbox_gpu_quarantine_total",
        "10m",
        0,
        CRITICAL,
        "{{ $labels.instance }} leaves its GPU alone: {{ $labels.reason }}.",
        _DEVICE,
    ),
    Alert(
        "StrangerOnDevice",
        "signalbox_gpu_strangers > 0",
        "1m",
        WARNING,
        "Foreign processes compute on the GPU of {{ $labels.instance }}.",
        _DEVICE,
        {"signalbox_gpu_strangers": ONE},
        {"signalbox_gpu_strangers": NONE},
    ),
    _rises(
        "DeviceMemoryShort",
        "signalbox_gpu_out_of_memory_total",
        "10m",
        3,
        WARNING,
        "The device's memory does not suffice ({{ $labels.phase }}).",
        _DEVICE,
    ),
    Alert(
        "JobsWait",
        "max by (model) (signalbox_queue_oldest_seconds) > 300",
        "5m",
        WARNING,
        "A job of {{ $labels.model }} has waited for {{ $value | humanizeDuration }}.",
        _QUEUE,
        {'signalbox_queue_oldest_seconds{model="m"}': "400x80"},
        {'signalbox_queue_oldest_seconds{model="m"}': "200x80"},
    ),
    Alert(
        "NoCapacity",
        "signalbox_scaling_devices_asked > signalbox_scaling_devices_wanted",
        "10m",
        WARNING,
        "Models ask for {{ $value }} devices of class {{ $labels.class }}, more than may have workers.",
        _QUEUE,
        {
            'signalbox_scaling_devices_asked{class="t4"}': "3x80",
            'signalbox_scaling_devices_wanted{class="t4"}': "2x80",
        },
        {
            'signalbox_scaling_devices_asked{class="t4"}': "2x80",
            'signalbox_scaling_devices_wanted{class="t4"}': "2x80",
        },
    ),
    Alert(
        "WorkersDoNotCome",
        "signalbox_scaling_devices_actual < signalbox_scaling_devices_wanted",
        "15m",
        WARNING,
        "Only {{ $value }} devices of class {{ $labels.class }} have workers, fewer than shall.",
        _QUEUE,
        {
            'signalbox_scaling_devices_actual{class="t4"}': ONE,
            'signalbox_scaling_devices_wanted{class="t4"}': "2x80",
        },
        {
            'signalbox_scaling_devices_actual{class="t4"}': "2x80",
            'signalbox_scaling_devices_wanted{class="t4"}': "2x80",
        },
    ),
    Alert(
        "JobsFail",
        'sum by (model) (rate(signalbox_worker_jobs_ended_total{state="failed"}[10m])) '
        "/ sum by (model) (rate(signalbox_worker_jobs_ended_total[10m])) > 0.2",
        "5m",
        WARNING,
        "More than a fifth of the jobs of {{ $labels.model }} fail.",
        _QUEUE,
        {
            'signalbox_worker_jobs_ended_total{model="m",state="failed"}': "0+5x80",
            'signalbox_worker_jobs_ended_total{model="m",state="succeeded"}': "0+5x80",
        },
        {
            'signalbox_worker_jobs_ended_total{model="m",state="failed"}': "0+1x80",
            'signalbox_worker_jobs_ended_total{model="m",state="succeeded"}': "0+9x80",
        },
    ),
    _rises(
        "FetchesFail",
        "signalbox_worker_cache_failures_total",
        "10m",
        5,
        WARNING,
        "Versions of {{ $labels.model }} cannot be fetched.",
        _FILES,
    ),
    _rises(
        "RepositoryIsNotListed",
        "signalbox_console_repository_failures_total",
        "10m",
        10,
        WARNING,
        "A repository cannot be listed: nothing new is served from it.",
        _FILES,
    ),
    _rises(
        "ConnectionsTurnedAway",
        'signalbox_refused_total{reason=~".*:connections"}',
        "5m",
        0,
        WARNING,
        "An address, or all together, have as many connections as they may.",
        _EDGE,
    ),
    Alert(
        "NetworkIsBusy",
        # Of one address: what is measured of several programs there is one machine's, or one container's.
        "sum by (host, direction) (label_replace(rate(signalbox_front_bytes_total[5m]), "
        f"'host', '$1', 'instance', '(.*):[0-9]+')) > 0.8 * {LINK_BYTES_S:.0f}",
        "5m",
        WARNING,
        "The fronts at {{ $labels.host }} have {{ $labels.direction }} {{ $value | humanize }}B/s.",
        _EDGE,
        # Two programs of one machine that together do, and of two that each do not; nor do two directions together.
        {
            'signalbox_front_bytes_total{front="edge",direction="sent",instance="a:9100"}': "0+10e9x80",
            'signalbox_front_bytes_total{front="edge",direction="sent",instance="a:9101"}': "0+10e9x80",
        },
        {
            'signalbox_front_bytes_total{front="edge",direction="sent",instance="a:9100"}': "0+10e9x80",
            'signalbox_front_bytes_total{front="edge",direction="received",instance="a:9100"}': "0+10e9x80",
            'signalbox_front_bytes_total{front="edge",direction="sent",instance="b:9100"}': "0+10e9x80",
        },
    ),
    _rises(
        "PasswordsAreGuessed",
        "signalbox_console_login_refused_total",
        "10m",
        20,
        WARNING,
        "Logins to the console are refused one after another.",
        _GUESS,
    ),
    _rises(
        "ForeignPageAsks",
        "signalbox_console_origin_refused_total",
        "10m",
        5,
        WARNING,
        "A foreign page asks for the console's live data.",
        _GUESS,
    ),
)
