//! A kernel's text: its entries with their parameters and blocks, and its lines of `//!PARAM`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wavefield_gpu::cuda::{KernelParameters, KernelSource, Signature, fuzzing};

/// Errors go to a terminal.
fn check_error(error: &str) {
    assert!(error.len() < 5000 && !error.contains(char::is_control), "{error:?}");
}

fuzz_target!(|text: &str| {
    let chosen = fuzzing::choose(text).inspect_err(|error| check_error(error));
    let entry = chosen.clone().unwrap_or("k".into());
    // Comments change nothing.
    let inside = if text.contains(['/', '"']) { text.into() } else { text.replace(',', "/*),*/,//{\n") };
    let commented = format!("// .entry no()\n/* .entry no() */\n{inside}");
    assert_eq!(fuzzing::choose(&commented), chosen);
    assert_eq!(fuzzing::block(&commented, &entry), fuzzing::block(text, &entry));
    for signature in [Signature::Field, Signature::Texture] {
        let check = |ptx| KernelSource::new("fuzz", ptx, &entry).check_signature(signature);
        assert_eq!(check(&commented).is_ok(), check(text).is_ok());
        check(text).unwrap_or_else(|error| check_error(&error.to_string()));
    }

    let parameters = match KernelParameters::of(text) {
        Ok(parameters) => parameters,
        Err(error) => return check_error(&error),
    };
    let mut written = String::new();
    for of in parameters.iter() {
        written +=
            &format!("//!PARAM {} float {} {} {} \"{}\"\n", of.name, of.min, of.max, of.default, of.unit);
    }
    assert_eq!(KernelParameters::of(&written).as_ref(), Ok(&parameters));
    let given: Vec<f32> =
        text.as_bytes().as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect();
    let values = parameters.values(&given);
    assert!(values.len() == parameters.len() && values.len() <= 16);
    assert!(parameters.iter().zip(values.iter()).all(|(of, value)| (of.min..=of.max).contains(value)));
});
