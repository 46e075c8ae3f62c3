"""What a rank's next step computes: vLLM's scheduler (V1), without a clock.

Requests are served first come, first served.  A step first goes on with those that run, then admits
those that wait, within `max_num_batched_tokens` tokens and `max_num_seqs` sequences; prompts are
cut into chunks that fit.  Keys and values lie in blocks of 16 tokens.  A request is admitted where
its whole prompt has room, and where a running one finds none, the one that was admitted last loses
its blocks, goes back to the front of those that wait, and is computed again.

Source: vllm-project/vllm 0.19 `vllm/v1/core/sched/scheduler.py` and `kv_cache_manager.py`
(`scheduler_reserve_full_isl`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from dpsim.serving.workload import Ask

#: tokens of a block of the KV cache (vLLM's default on CUDA)
BLOCK = 16


@dataclass(eq=False)
class Sequence:
    """A request on a rank.

    computed  tokens whose keys and values are there; put_out  tokens of the answer so far
    blocks    of the KV cache that it holds
    times     its own clock: came (to the service), first, last token put out by the engine [s]
    """

    ask: Ask
    came: float
    computed: int = 0
    put_out: int = 0
    blocks: int = 0
    server: int = 0
    rank: int = 0
    first: float = -1.0
    last: float = -1.0
    restarts: int = 0

    @property
    def known(self) -> int:
        """Tokens that there are: its prompt and what was put out."""
        return self.ask.prompt + self.put_out


@dataclass
class StepWork:
    """What a step computes.

    tokens   of all sequences; prompts  of these, tokens of prompts (or of what is computed again)
    pairs    pairs of a prompt's token and one that it looks at
    context  tokens whose keys and values sequences with one new token read
    prompt_context  the same of chunks of prompts
    logits   sequences that put out a token
    """

    tokens: int = 0
    prompts: int = 0
    pairs: float = 0.0
    context: int = 0
    prompt_context: int = 0
    logits: int = 0
    chunks: list[tuple[Sequence, int]] = field(default_factory=list)

    def add(self, one: Sequence, many: int) -> None:
        """`many` more tokens of `one`."""
        self.tokens += many
        behind = one.computed + many
        if many == 1 and one.put_out:
            self.context += behind
        else:
            self.prompts += many
            self.pairs += many * (one.computed + (many + 1) / 2)
            self.prompt_context += behind
        self.logits += behind == one.known
        self.chunks.append((one, many))


@dataclass(eq=False)
class Scheduler:
    """The sequences of one rank: those that wait, those that run, and their blocks.

    held   why the first that waits was not admitted to the last step: "" (none waits),
           "max_num_seqs", "kv_blocks" or "max_num_batched_tokens"
    """

    blocks: int
    most: int
    budget: int
    waiting: deque[Sequence] = field(default_factory=deque)
    running: list[Sequence] = field(default_factory=list)
    used: int = 0
    preempted: int = 0
    held: str = ""

    def accepts(self, ask: Ask) -> bool:
        """Whether the request fits into the KV cache at all."""
        return blocks_of(ask.prompt + ask.answer) <= self.blocks

    def step(self) -> StepWork:
        """What the next step computes; blocks are taken."""
        work, left = StepWork(), self.budget
        place = 0
        stopped = False
        while place < len(self.running) and left:
            one = self.running[place]
            many = min(one.known - one.computed, left)
            if not self._room(one, many):
                stopped = True
                if place >= len(self.running):  # it was its own turn to make room
                    break
            self._take(one, many)
            work.add(one, many)
            left -= many
            place += 1
        self._admit(work, left, stopped)
        return work

    def _room(self, one: Sequence, many: int) -> bool:
        """Make room for `one`: the last that runs go, `one` itself last of all; False where any
        did."""
        went = False
        while self._short(one, many):
            last = self.running.pop()
            self.used -= last.blocks
            last.blocks = last.computed = 0
            last.restarts += 1
            self.preempted += 1
            self.waiting.appendleft(last)
            went = True
            if last is one:
                break
        return not went

    def _short(self, one: Sequence, many: int) -> bool:
        return self.used + blocks_of(one.computed + many) - one.blocks > self.blocks

    def _take(self, one: Sequence, many: int) -> None:
        need = blocks_of(one.computed + many)
        self.used += need - one.blocks
        one.blocks = need

    def _admit(self, work: StepWork, left: int, stopped: bool) -> None:
        """Those that wait, as many as fit; none in a step that took blocks away."""
        self.held = "kv_blocks" if stopped and self.waiting else ""
        while self.waiting and not stopped:
            one = self.waiting[0]
            if len(self.running) >= self.most:
                self.held = "max_num_seqs"
            elif not left:
                self.held = "max_num_batched_tokens"
            elif self.used + blocks_of(one.known) > self.blocks:
                self.held = "kv_blocks"
            if self.held:
                return
            self.waiting.popleft()
            self.running.append(one)
            many = min(one.known, left)
            self._take(one, many)
            work.add(one, many)
            left -= many

    def done(self, work: StepWork, now: float) -> tuple[list[Sequence], list[Sequence]]:
        """The step has ended at `now`: sequences that put out a token, and those that are through,
        whose blocks are free again."""
        put_out, through = [], []
        for one, many in work.chunks:
            one.computed += many
            if one.computed < one.known:
                continue
            one.put_out += 1
            put_out.append(one)
            if one.put_out == one.ask.answer:
                self.used -= one.blocks
                one.blocks = 0
                through.append(one)
        if through:
            gone = set(map(id, through))
            self.running = [one for one in self.running if id(one) not in gone]
        return put_out, through


def blocks_of(tokens: int) -> int:
    """Blocks that so many tokens take."""
    return -(-tokens // BLOCK)
