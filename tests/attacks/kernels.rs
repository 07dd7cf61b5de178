//! PTX that is not what `kernels/README.md` asks for.
