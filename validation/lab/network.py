"""Network namespaces that stand for hosts: one cable each into one switch, rate-limited both ways.

Every host is a namespace with one interface (eth0, a veth pair); the other ends of the pairs are
ports of a bridge in a namespace of its own, the switch.  Nothing is made in the namespace that the
machine itself lives in, so removing the namespaces removes everything.  Their names carry the
process id and start time of the program that made them: a later start can tell leftovers of a
killed run from a run that is alive.

A token bucket (tc tbf) at either end of a cable limits what the host sends and what it receives.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

PREFIX = "dpsimlab-"
SUBNET = "10.77.0."
FRAME = 1514  # bytes of a full Ethernet frame as tc counts it
#: bytes that may pass at once after idling.  Small, so that a message of some 10 kB meets the
#: nominal rate too; at least a few frames, because timers wake up too late for single ones.
BURST = 8 * FRAME
#: bytes that wait in front of a full cable before frames are dropped; a switch port's buffer
QUEUE = 1_000_000
CONGESTION_CONTROL = ("cubic", "reno")


class NotAllowed(RuntimeError):
    """This machine or user may not make network namespaces; the message says what is missing."""


def require() -> None:
    """Raise NotAllowed where namespaces, bridges or tbf are not to be had."""
    if os.geteuid() != 0:
        raise NotAllowed(
            "network namespaces need root; run as root (sudo), or in a container "
            "with CAP_SYS_ADMIN and CAP_NET_ADMIN"
        )
    probe = Switch(0, probe=True)
    try:
        probe.open()
        probe.limit(0, 1e6)
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", "") or str(error)
        raise NotAllowed(
            f"cannot make a namespace with a bridge and tc tbf: {said.strip()}"
        ) from None
    finally:
        probe.close()


def run(*words: str) -> str:
    """The output of a command; CalledProcessError where it fails."""
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=30).stdout


def identity(pid: int) -> str | None:
    """`pid` and when it started, or None where there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] == "Z" else f"{pid}-{fields[19]}"


def namespaces() -> list[str]:
    """The lab's namespaces on this machine, of whichever run."""
    folder = Path("/run/netns")
    return sorted(p.name for p in folder.glob(f"{PREFIX}*")) if folder.is_dir() else []


def clean(*, everyone: bool = False) -> list[str]:
    """Remove the namespaces of runs that have ended (`everyone`: of all runs); their names."""
    removed = []
    for name in namespaces():
        owner = "-".join(name.removeprefix(PREFIX).split("-")[:2])
        pid = owner.partition("-")[0]
        if not everyone and pid.isdigit() and identity(int(pid)) == owner:
            continue
        _remove(name)
        removed.append(name)
    return removed


def _remove(name: str) -> None:
    """End what runs in a namespace and remove it."""
    try:
        inside = run("ip", "netns", "pids", name).split()
    except subprocess.CalledProcessError:  # a name that a killed `ip netns add` left behind
        inside = []
    for pid in inside:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    subprocess.run(("ip", "netns", "delete", name), check=False, capture_output=True, timeout=30)


class Switch:
    """`hosts` namespaces, cabled to a bridge.  Use as a context manager."""

    def __init__(self, hosts: int, *, probe: bool = False) -> None:
        own = identity(os.getpid())
        self.prefix = f"{PREFIX}{own}-{'probe-' if probe else ''}"
        self.hosts = max(hosts, 1)
        self.congestion_control = ""

    def __enter__(self) -> Switch:
        try:
            self.open()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def name(self, host: int) -> str:
        return f"{self.prefix}h{host}"

    @staticmethod
    def address(host: int) -> str:
        return f"{SUBNET}{host + 1}"

    def open(self) -> None:
        switch = f"{self.prefix}switch"
        run("ip", "netns", "add", switch)
        run("ip", "-n", switch, "link", "add", "br0", "type", "bridge")
        run("ip", "-n", switch, "link", "set", "br0", "up")
        for host in range(self.hosts):
            name, port = self.name(host), f"p{host}"
            run("ip", "netns", "add", name)
            run("ip", "link", "add", "name", port, "netns", switch, "type", "veth",
                "peer", "name", "eth0", "netns", name)  # fmt: skip
            run("ip", "-n", name, "address", "add", f"{self.address(host)}/24", "dev", "eth0")
            run("ip", "-n", name, "link", "set", "lo", "up")
            run("ip", "-n", name, "link", "set", "eth0", "up")
            run("ip", "-n", switch, "link", "set", port, "master", "br0", "up")
            self._congestion_control(name)

    def _congestion_control(self, name: str) -> None:
        """CUBIC, the default of Linux; Reno where this machine keeps namespaces from using it."""
        for choice in CONGESTION_CONTROL:
            try:
                run("ip", "netns", "exec", name, "sysctl", "-qw",
                    f"net.ipv4.tcp_congestion_control={choice}")  # fmt: skip
            except subprocess.CalledProcessError:
                continue
            self.congestion_control = choice
            return

    def limit(self, host: int, rate: float) -> None:
        """Let `host` send and receive `rate` bytes a second, frames with their headers."""
        for name, device in ((self.name(host), "eth0"), (f"{self.prefix}switch", f"p{host}")):
            run("tc", "-n", name, "qdisc", "replace", "dev", device, "root", "tbf",
                "rate", f"{round(rate * 8)}bit", "burst", str(BURST),
                "limit", str(QUEUE))  # fmt: skip

    def close(self) -> None:
        for name in namespaces():
            if name.startswith(self.prefix):
                _remove(name)
