//! Nothing: the dependencies are what is compiled.
