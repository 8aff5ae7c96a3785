"""What a worker counts for Prometheus. Served on ``SIGNALBOX_METRICS_PORT``."""

from collections.abc import Mapping, Sequence
from typing import Final

from signalbox.program import metrics

ENDED: Final = metrics.counter("worker_jobs_ended", "Jobs this worker ended, by how.", "model", "state")
RETRIED: Final = metrics.counter("worker_jobs_retried", "Jobs put back to the queue.", "model", "code")
SUPERSEDED: Final = metrics.counter(
    "worker_stale_attempts", "Writes of attempts that another had overtaken; refused.", "model"
)
REDELIVERED: Final = metrics.counter(
    "worker_redelivered", "Deliveries that may not have been the first: records are read before they run.", "model"
)
QUEUES_ANEW: Final = metrics.counter(
    "worker_queues_read_anew", "Times that a model's jobs were delivered again from the first on.", "model"
)
BATCH_JOBS: Final = metrics.histogram(
    "worker_batch_jobs", "Jobs in a batch.", "model", buckets=(1, 2, 4, 8, 16, 32, 64, 128)
)
RUN_SECONDS: Final = metrics.histogram("worker_run_seconds", "One run of a batch.", "model")
WAIT_SECONDS: Final = metrics.histogram(
    "worker_wait_seconds",
    "What a job had waited when it ended, in all its attempts: all but delay, run and commit.",
    "model",
)
LEASE_SECONDS: Final = metrics.histogram(
    "worker_lease_seconds", "What of the wait of a job that ended was for the lease of a device."
)
SHADOW_RUNS: Final = metrics.counter("worker_shadow_runs", "Runs of a candidate in the shadow of another one.", "model")
PRESENCE_SHORTENED: Final = metrics.counter(
    "worker_presence_shortened", "Times this worker's presence document began to be too long to be written whole."
)
HOLDS: Final = metrics.counter("worker_holds", "Leases this worker held and lost, by how each ended.", "end")
IN_FLIGHT: Final = metrics.gauge("worker_jobs_in_flight", "Jobs delivered and not yet ended.")
STRIKES: Final = metrics.counter(
    "worker_strikes", "Runs alone that took the runner down or over the time.", "model", "code"
)
QUARANTINED: Final = metrics.counter(
    "worker_quarantined", "Jobs refused because their input is in quarantine.", "model"
)
CEILING: Final = metrics.gauge(
    "worker_batch_ceiling_rows",
    "Most rows the memory takes in one run, as last found out: of a model's versions and shapes, and of all models "
    "together, the least.",
    "model",
)
VANISHED: Final = metrics.counter("worker_vanished", "Attempts found to have ended without a commit.", "model")
CANCEL_SECONDS: Final = metrics.histogram(
    "worker_cancel_seconds", "From learning of a cancel request to the job's durable end."
)
NEWER: Final = metrics.counter(
    "worker_newer_versions", "Jobs and records left alone because a newer program wrote them.", "model"
)
RECONCILED: Final = metrics.counter(
    "reconciler_turns", "Turns of this worker's reconciler: done, not ours, failed.", "result"
)
RECONCILER_OPEN: Final = metrics.gauge(
    "reconciler_open", "Records that are not terminal, as the reconciler knows them."
)
REDELIVERIES_ASKED: Final = metrics.counter(
    "reconciler_redeliveries_asked", "Models whose jobs were asked to be delivered again, as one was not.", "model"
)
RECONCILER_ENDED: Final = metrics.counter(
    "reconciler_ended", "Jobs that the reconciler ended because no worker did.", "model", "state"
)
REQUEUED: Final = metrics.counter(
    "reconciler_requeued", "Jobs queued again because the queue had lost them; alert above 0.", "model"
)
RECONCILER_LOST: Final = metrics.counter(
    "reconciler_lost", "Jobs failed because the queue had lost them with their input.", "model"
)
JOBS_REMOVED: Final = metrics.counter("reconciler_jobs_removed", "Messages of ended jobs removed from JOBS.")
DELAYED: Final = metrics.gauge(
    "reconciler_delayed", "Jobs that wait for their time to be queued, as the reconciler knows them."
)
RELEASED: Final = metrics.counter("reconciler_released", "Delayed jobs queued when their time had come.", "model")
INPUTS_REMOVED: Final = metrics.counter(
    "reconciler_inputs_removed", "Stored inputs that were refused, or of ended jobs whose ends were not read in time."
)
ERASED: Final = metrics.counter("reconciler_erased", "Messages erased that deleted jobs had left.")
SHORT_LIVED_REMOVED: Final = metrics.counter(
    "reconciler_short_lived_removed", "Records of synchronous calls removed after their short time."
)
ENDS_UNSENT: Final = metrics.counter(
    "reconciler_ends_unsent",
    "Records of ended jobs removed before the outbound program had passed them, while somebody was subscribed; alert "
    "above 0.",
)
RUNNER_REFUSED: Final = metrics.counter(
    "worker_runner_refused",
    "Runners ended for what they said: frame, answer (malformed), output (a flood); or for silence (frozen).",
    "reason",
)
SKIPPED: Final = metrics.counter(
    "worker_redelivery_skipped_terminal", "Deliveries of jobs that had ended: not run again.", "model"
)
LEASE_SLACK: Final = metrics.gauge(
    "lease_slack_seconds", "Until the guard would end the runner; 0 without a lease. Alert below 4, but for 0."
)
LEASE_TOKEN: Final = metrics.gauge("lease_token", "Fencing token held, 0 = none; only rises.")
GPU_WAIT_FREE: Final = metrics.histogram(
    "gpu_wait_free_seconds", "Until a GPU that was taken over had no process on it, or was given up."
)
GPU_QUARANTINE: Final = metrics.counter(
    "gpu_quarantine",
    "GPUs left alone: silent, gone, fault, memory, process; lock (not free) or disk (token not kept). Alert above 0.",
    "reason",
)
GPU_FOREIGN: Final = metrics.gauge(
    "gpu_strangers", "Foreign processes that compute on the GPU this worker holds. Alert above 0."
)
OUT_OF_MEMORY: Final = metrics.counter(
    "gpu_out_of_memory", "Runs and loads that the device's memory did not suffice for.", "phase"
)
CACHE_HITS: Final = metrics.counter(
    "worker_cache_hits", "Loads of versions whose files were in the disk cache already.", "model"
)
CACHE_MISSES: Final = metrics.counter("worker_cache_misses", "Versions that had to be fetched.", "model")
CACHE_FAILURES: Final = metrics.counter("worker_cache_failures", "Tries to fetch a version that failed.", "model")
CACHE_FETCHED: Final = metrics.counter("worker_cache_fetched_bytes", "Bytes that came from repositories.", "model")
CACHE_FETCH_SECONDS: Final = metrics.histogram(
    "worker_cache_fetch_seconds", "Fetch of a version, from the list of its files to the verified bytes.", "model"
)
LOAD_SECONDS: Final = metrics.histogram(
    "worker_load_seconds", "Load of a version: its files verified, loaded and warmed up.", "model"
)
CACHE_BYTES: Final = metrics.gauge(
    "worker_cache_bytes", "Of all versions in this host's disk cache, when this worker last changed it."
)
CACHE_EVICTIONS: Final = metrics.counter(
    "worker_cache_evictions",
    "Versions that left the disk cache: room (for another), disk (full), changed (the same number from elsewhere),"
    " damaged.",
    "model",
    "reason",
)
THEIR_TOTAL: Final = metrics.counter(
    "tfservingcache_cache", "Jobs that ended, as TFServingCache counts requests to its cache.", "model", "version"
)
THEIR_HITS: Final = metrics.counter(
    "tfservingcache_cache_hits", "Jobs that ended and did not wait for their version's files.", "model", "version"
)
THEIR_MISSES: Final = metrics.counter(
    "tfservingcache_cache_misses", "Jobs that ended and had waited for their version's files.", "model", "version"
)
THEIR_SECONDS: Final = metrics.histogram(
    "tfservingcache_cache_duration_seconds",
    "What jobs that ended had waited for a fetch and for a load of their version.",
    "model",
    "version",
)
THEIR_FETCH_SECONDS: Final = metrics.histogram(
    "tfservingcache_cache_fetch_duration_seconds",
    "Fetch of a version, from the list of its files on.",
    "model",
    "version",
)


def count_cached(model: str, version: int, waits_ms: Sequence[tuple[float, float]]) -> None:
    """Count jobs that ended as TFServingCache counts requests: what each waited for a fetch and a load."""
    labels = model, str(version)
    THEIR_TOTAL.labels(*labels).inc(len(waits_ms))
    if misses := sum(fetch_ms > 0 for fetch_ms, _ in waits_ms):
        THEIR_MISSES.labels(*labels).inc(misses)
    if hits := len(waits_ms) - misses:
        THEIR_HITS.labels(*labels).inc(hits)
    seconds = [(fetch_ms + load_ms) / 1000 for fetch_ms, load_ms in waits_ms]
    metrics.observe_many(THEIR_SECONDS.labels(*labels), seconds)


def show_ceiling(model: str, lowest: Mapping[tuple[str, int], int]) -> None:
    """Tell how many rows a run may have of a model that had too many. lowest: of each version with a limit, its own."""
    least = min((rows for (name, _), rows in lowest.items() if name == model), default=0)
    if not least:
        return
    series = CEILING.labels(model)
    series.set(min(lowest.values()) if metrics.is_joined(CEILING) else least)
