"""How vLLM runs in tests."""

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine in the program's own process
    "VLLM_DISABLE_REQUEST_ID_RANDOMIZATION": "1",
    "OMP_NUM_THREADS": "1",  # tests run beside a server, and some beside mindstudio-probe
}
