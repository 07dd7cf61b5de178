"""Arrays and where they lie: what an array of any library is, memory on the GPU and in the CPU, and CUDA's driver.

The lowest room knows no renderer. It imports errors, messages and optional libraries only.
"""
