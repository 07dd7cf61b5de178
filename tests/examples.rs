//! The examples' own code, to its end. (`05_client` is run by `serve.rs`.)

// Each example has its own copy of `examples/common`.
#![allow(dead_code, clippy::duplicate_mod)]

#[path = "../examples/04_another_library.rs"]
mod another_library;
mod common;
#[path = "../examples/03_hand_over.rs"]
mod hand_over;
#[path = "../examples/01_match.rs"]
mod match_devices;
#[path = "../examples/02_share.rs"]
mod share;

/// An example fails by an error; what it skips is a skip here.
macro_rules! runs {
    ($($name:ident: $example:ident),* $(,)?) => {$(
        #[test]
        fn $name() {
            match $example::run() {
                Ok($example::common::Outcome::Done) => {}
                Ok($example::common::Outcome::Skipped(reason)) => common::skip_without_gpu(&reason),
                Err(error) => panic!("{error}"),
            }
        }
    )*};
}

runs! {
    a_device_is_matched: match_devices,
    a_buffer_is_shared: share,
    frames_are_handed_over: hand_over,
    another_library_takes_a_slot: another_library,
}
