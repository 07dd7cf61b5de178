use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::protocol::short;
use wavefield_handoff::contents::array::{ArrayKind, DrawnArray, Number};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrayDescription {
    pub kind: ArrayKind,
    /// The length of each dimension, as [`DrawnArray::new`] expects it.
    pub shape: Vec<u64>,
    pub dtype: Number,
}

impl From<DrawnArray> for ArrayDescription {
    fn from(array: DrawnArray) -> Self {
        Self { kind: array.kind(), shape: array.shape(), dtype: array.number() }
    }
}

const DIMENSIONS: usize = 3;

pub fn described(wanted: &Value) -> Result<DrawnArray, String> {
    let Value::Object(fields) = wanted else {
        return Err("`array` is not an object with `kind`, `shape` and `dtype`".into());
    };
    let field = |name: &str| fields.get(name).unwrap_or(&Value::Null);
    // The value is quoted in answers and on the terminal, so shorten it and make it safe to print.
    let quoted = |value: &Value| short(&value.to_string(), 40);
    let kind = ArrayKind::deserialize(field("kind")).map_err(|_| {
        format!("there is no kind {}; there are mesh, surface, points, image", quoted(field("kind")))
    })?;
    let number = Number::deserialize(field("dtype")).map_err(|_| {
        format!(
            "there is no dtype {}; there are <f4, <f2 and |u1: convert the array first",
            quoted(field("dtype"))
        )
    })?;
    let shape = field("shape");
    let numbers =
        shape.as_array().and_then(|sides| sides.iter().map(Value::as_u64).collect::<Option<Vec<_>>>());
    match numbers {
        Some(numbers) if numbers.len() <= DIMENSIONS => DrawnArray::new(kind, &numbers, number),
        Some(numbers) => {
            Err(format!("`shape` has {} dimensions: no kind has more than {DIMENSIONS}", numbers.len()))
        }
        None => Err(format!("`shape` {} is not a list of whole numbers", quoted(shape))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_array_reads_as_it_is_written() {
        for text in [
            json!({"kind": "mesh", "shape": [3, 5, 4], "dtype": "<f4"}),
            json!({"kind": "surface", "shape": [3, 5], "dtype": "<f2"}),
            json!({"kind": "points", "shape": [7, 3], "dtype": "<f4"}),
            json!({"kind": "image", "shape": [3, 5, 4], "dtype": "|u1"}),
        ] {
            let array = described(&text).unwrap();
            assert_eq!(serde_json::to_value(ArrayDescription::from(array)).unwrap(), text);
        }
    }

    #[test]
    fn what_makes_no_sense_is_said_with_the_cure() {
        let array =
            |kind: Value, shape: Value, dtype: Value| json!({"kind": kind, "shape": shape, "dtype": dtype});
        let (image, f4) = (json!("image"), json!("<f4"));
        for (wanted, words) in [
            (json!([1, 2]), "not an object"),
            (json!({"shape": [2, 2], "dtype": "<f4"}), "no kind null"),
            (array(json!("voxels"), json!([2, 2]), f4.clone()), "no kind \"voxels\"; there are mesh"),
            (array(image.clone(), json!([2, 2]), json!("<f8")), "no dtype \"<f8\"; there are <f4"),
            (array(image.clone(), json!([2, 2]), json!(7)), "no dtype 7"),
            (array(image.clone(), json!("2x2"), f4.clone()), "not a list of whole numbers"),
            (array(image.clone(), json!([2, -2]), f4.clone()), "not a list of whole numbers"),
            (array(image.clone(), json!([2, 2.5]), f4.clone()), "not a list of whole numbers"),
            (array(image.clone(), json!(vec![0; 9000]), f4.clone()), "9000 dimensions"),
            (array(image.clone(), json!([2, 2, 2]), f4.clone()), "1, 3 or 4"),
            (array(image.clone(), json!([u64::MAX, u64::MAX, 4]), f4.clone()), "too large"),
            (array(json!("points"), json!([1_u64 << 63, 4]), f4), "too many"),
        ] {
            let error = described(&wanted).unwrap_err();
            assert!(error.contains(words) && error.len() < 300, "{words}: {error}");
        }
        let long = json!({"kind": "x".repeat(60_000), "shape": [], "dtype": "\u{1b}[2J"});
        let error = described(&long).unwrap_err();
        assert!(error.len() < 200 && !error.contains(char::is_control), "{error}");
    }
}
