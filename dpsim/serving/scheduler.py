"""What a rank's next step computes: vLLM's scheduler (V1), without a clock.

Requests are served first come, first served.  A step first goes on with those that run, then admits
those that wait, within `max_num_batched_tokens` tokens and `max_num_seqs` sequences; prompts are
cut into chunks that fit.  Keys and values lie in blocks of 16 tokens.  A request is admitted where
its whole prompt has room, and where a running one finds none, the one that was admitted last loses
its blocks, goes back to the front of those that wait, and is computed again.

A step is chosen while the one before it is still computed (asynchronous scheduling, the default),
so it goes on with tokens that are not put out yet; seats and blocks are free when they are.

Source: vllm-project/vllm 0.19 `vllm/v1/core/sched/scheduler.py`, `async_scheduler.py` and
`kv_cache_manager.py` (`scheduler_reserve_full_isl`).
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

    computed  tokens whose keys and values are there after the steps that were chosen
    chosen    tokens of the answer that these steps put out; put_out  those that are put out
    blocks    of the KV cache that it holds
    times     its own clock: came (to the service), first, last token put out by the engine [s]
    queued    from the first step that was chosen after it had come until the first that it is in:
              what it waits for seats, blocks, or room in steps [s]
    """

    ask: Ask
    came: float
    computed: int = 0
    chosen: int = 0
    put_out: int = 0
    blocks: int = 0
    server: int = 0
    rank: int = 0
    first: float = -1.0
    last: float = -1.0
    queued: float = 0.0
    restarts: int = 0

    @property
    def known(self) -> int:
        """Tokens that there are to compute: its prompt and the answer's, but for the last."""
        ask, chosen = self.ask, self.chosen
        return ask.prompt + (chosen if chosen < ask.answer else ask.answer - 1)


@dataclass
class StepWork:
    """What a step computes.

    tokens   of all sequences; prompts  of these, tokens of prompts (or of what is computed again)
    pairs    pairs of a prompt's token and one that it looks at
    context  tokens whose keys and values sequences with one new token read
    prompt_context  the same of chunks of prompts
    logits   sequences that put out a token, which are `putting`
    begun    those that were admitted for the first time
    """

    tokens: int = 0
    prompts: int = 0
    pairs: float = 0.0
    context: int = 0
    prompt_context: int = 0
    chunks: int = 0
    putting: list[Sequence] = field(default_factory=list)
    begun: list[Sequence] = field(default_factory=list)

    @property
    def logits(self) -> int:
        return len(self.putting)

    def follow(self, one: Sequence) -> None:
        """One more token of `one`, which is answered: what `add` does, for most of all tokens."""
        one.computed += 1
        one.chosen += 1
        self.tokens += 1
        self.chunks += 1
        self.context += one.computed
        self.putting.append(one)

    def add(self, one: Sequence, many: int) -> None:
        """`many` more tokens of `one`, which counts as computed from here on."""
        self.tokens += many
        behind = one.computed + many
        if many == 1 and one.chosen:
            self.context += behind
        else:
            self.prompts += many
            self.pairs += many * (one.computed + (many + 1) / 2)
            self.prompt_context += behind
        self.chunks += 1
        if behind == one.known:
            self.putting.append(one)
            one.chosen += 1
        one.computed = behind


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

    @property
    def unchosen(self) -> bool:
        """Whether any that run have more to compute than was chosen."""
        return any(one.computed < one.known for one in self.running)

    def step(self) -> StepWork:
        """What the next step computes; blocks are taken."""
        work, left = StepWork(), self.budget
        place = 0
        stopped = False
        while place < len(self.running) and left:
            one = self.running[place]
            many = one.known - one.computed
            if many == 1 and one.computed % BLOCK and one.chosen:  # the next token of a block
                work.follow(one)
            elif many:
                many = min(many, left)
                if not self._room(one, many):
                    stopped = True
                    if place >= len(self.running):  # it was its own turn to make room
                        break
                self._take(one, many)
                work.add(one, many)
            left -= many  # none where its last token is on its way
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
            if not one.restarts:
                work.begun.append(one)
            many = min(one.known, left)
            self._take(one, many)
            work.add(one, many)
            left -= many

    def done(self, work: StepWork) -> list[Sequence]:
        """The step has ended: sequences that are through, whose blocks are free again."""
        through = []
        for one in work.putting:
            one.put_out += 1
            if one.put_out == one.ask.answer:
                self.used -= one.blocks
                one.blocks = 0
                through.append(one)
        if through:
            gone = set(map(id, through))
            self.running = [one for one in self.running if id(one) not in gone]
            # a sequence may have lost its blocks while its last token was on its way
            self.waiting = deque(one for one in self.waiting if id(one) not in gone)
        return through


def blocks_of(tokens: int) -> int:
    """Blocks that so many tokens take."""
    return -(-tokens // BLOCK)
