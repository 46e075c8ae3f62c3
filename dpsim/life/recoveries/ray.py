"""Ray Train: the whole group of workers ends and starts anew from its latest checkpoint."""

from __future__ import annotations

from dpsim.core import units
from dpsim.core.record import record
from dpsim.life.recoveries import Event, Outage, Recovery, Setting


@record
class Ray(Recovery):
    """When a worker or its node dies, Ray Train shuts the worker group down, starts one of the same
    size and resumes from the latest checkpoint that was reported (docs.ray.io, Train: Handling
    Failures and Node Preemption; `max_failures` is taken to be -1, no limit).

    detection  until Ray has declared a node dead: five health checks 3 s apart, each of which gives
               up after 10 s, are 62 s (src/ray/common/ray_config_def.h: health_check_period_ms,
               health_check_timeout_ms, health_check_failure_threshold)
    """

    detection: units.Seconds = 62.0

    def outage(self, event: Event, setting: Setting) -> Outage:
        return Outage(self.detection + self.diagnosis, setting.startup, setting.restore)
