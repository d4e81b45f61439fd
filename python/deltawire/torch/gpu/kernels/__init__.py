"""The Triton kernels. Imported only where a codec runs on a device."""
