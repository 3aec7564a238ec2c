"""The tokens of each request as a vLLM runner samples them, for the server that judges replies (docs/responses.md)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_MOST_CANDIDATES = 20  # of a token; a request may ask for its whole vocabulary


class Replies:
    """Tells the debugger's server of tokens, once they lie on the host for vLLM itself: nobody waits for a device.

    Of ranks that sample the same tokens (tensor parallelism) the first one speaks. A request without logprobs has
    tokens alone. Raises nothing: after a fault it is silent. Threads: the runner's, and that in which vLLM fetches a
    batch's output.
    """

    def __init__(self, runner: Any, debugger: Any) -> None:
        self._debugger = debugger
        mode = getattr(getattr(runner, "model_config", None), "logprobs_mode", "raw_logprobs")
        self._has_logprobs = str(mode).endswith("logprobs")  # else what vLLM gives are logits
        # Of each request that goes on: how many candidates it asked for. None: for tokens that it named itself.
        self._candidates: dict[str, int | None] = {}
        self._speaks: bool | None = None

    def scheduled(self, batch: Any) -> None:
        """batch: vLLM's SchedulerOutput, which says what requests have ended and which are new."""
        self._contained(lambda: self._follow(batch))

    def sampled(self, output: Any) -> None:
        """output: what the runner returns. One that comes later (asynchronous scheduling) is looked at then."""
        self._contained(lambda: self._look(output))

    def _follow(self, batch: Any) -> None:
        agent = self._agent()
        if agent is None:
            return
        for request in batch.finished_req_ids:
            if request in self._candidates:
                del self._candidates[request]
                agent.end_response(self._step(), request)
        for new in batch.scheduled_new_reqs:
            self._candidates[new.req_id] = _candidates(new.sampling_params)

    def _look(self, output: Any) -> None:
        if self._agent() is None:
            return
        step, candidates = self._step(), dict(self._candidates)
        get_output = getattr(output, "get_output", None)
        if get_output is None:
            self._tell(output, step, candidates)
            return

        def told() -> Any:
            result = get_output()
            self._contained(lambda: self._tell(result, step, candidates))
            return result

        output.get_output = told

    def _tell(self, output: Any, step: int, candidates: dict[str, int | None]) -> None:
        agent, requests = self._agent(), getattr(output, "req_ids", ())
        if agent is None or not requests:
            return
        # Tokens that one request named are vLLM's candidates for its whole batch.
        named = any(candidates.get(request, 0) is None for request in requests)
        lists = output.logprobs if self._has_logprobs and not named else None
        starts = None if lists is None else lists.cu_num_generated_tokens
        for index, (request, tokens) in enumerate(zip(requests, output.sampled_token_ids)):
            if request not in self._candidates or len(tokens) == 0:
                continue  # it has ended since
            logprobs: list[list[float]] = []
            if lists is not None and (count := candidates.get(request)):
                start = index if starts is None else starts[index]
                # The first column is the sampled token's own.
                logprobs = lists.logprobs[start : start + len(tokens), 1 : 1 + count].tolist()
            agent.log_tokens(step, request, [int(token) for token in tokens], logprobs)

    def _agent(self) -> Any:
        if self._speaks is None:
            self._speaks = _is_speaker()
        return self._debugger.agent_for_replies() if self._speaks else None

    def _step(self) -> int:
        service = self._debugger.service
        return int(service.loop + service.init_step)

    def _contained(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:  # the engine goes on
            from msprobe._common import log

            self._speaks = False
            log.warning(f"msprobe: {error}; tokens of replies are not judged any more")


def _candidates(sampling: Any) -> int | None:
    if getattr(sampling, "logprob_token_ids", None):
        return None
    asked = getattr(sampling, "logprobs", None) or 0
    return _MOST_CANDIDATES if asked < 0 else min(asked, _MOST_CANDIDATES)


def _is_speaker() -> bool:
    from vllm.distributed import parallel_state

    context = getattr(parallel_state, "get_pcp_group", None)  # its ranks share a prompt; older versions have none
    is_first = context is None or context().rank_in_group == 0
    return bool(
        is_first and parallel_state.get_tensor_model_parallel_rank() == 0 and parallel_state.get_pp_group().is_last_rank
    )
