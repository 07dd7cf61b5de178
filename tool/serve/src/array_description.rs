use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::protocol::short;
use wavefield_handoff::contents::array::{ArrayKind, DrawnArray, Number};
use wavefield_handoff::contents::parts::{Part, PartName};
use wavefield_handoff::contents::things::{MAX_THINGS, Things};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrayDescription {
    pub kind: ArrayKind,
    /// The length of each dimension, as [`DrawnArray::new`] expects it.
    pub shape: Vec<u64>,
    pub dtype: Number,
    /// The arrays behind it, and how many views are side by side: see [`Things`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub more: Vec<ArrayDescription>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub columns: u32,
    /// By name, as [`PartName`] has them.
    #[serde(flatten)]
    pub parts: BTreeMap<String, PartDescription>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartDescription {
    pub shape: Vec<u64>,
    pub dtype: Number,
}

impl From<DrawnArray> for ArrayDescription {
    fn from(array: DrawnArray) -> Self {
        let part = |(name, part, _): (PartName, Part, u64)| {
            (name.name().to_owned(), PartDescription { shape: part.shape(), dtype: part.number })
        };
        let parts = array.parts().map(part).collect();
        let (kind, shape, dtype) = (array.kind(), array.shape(), array.number());
        Self { kind, shape, dtype, more: Vec::new(), columns: 0, parts }
    }
}

impl From<&Things> for ArrayDescription {
    fn from(Things { first, more, columns }: &Things) -> Self {
        let more = more.iter().map(|&(array, _)| array.into()).collect();
        Self { more, columns: *columns, ..Self::from(*first) }
    }
}

fn is_zero(columns: &u32) -> bool {
    *columns == 0
}

const DIMENSIONS: usize = 3;

/// Reads the arrays of a slot.
pub fn described(wanted: &Value) -> Result<Things, String> {
    let first = one_described(wanted)?;
    let more = match wanted.get("more") {
        None => &[][..],
        Some(Value::Array(more)) => more,
        Some(_) => return Err("`more` is not a list of arrays".into()),
    };
    let one = |(number, wanted)| one_described(wanted).map_err(|error| format!("`more` {number}: {error}"));
    // No longer list is read.
    let more: Vec<_> = more.iter().take(MAX_THINGS).enumerate().map(one).collect::<Result<_, _>>()?;
    let columns = wanted.get("columns").map_or(Some(0), Value::as_u64);
    Things::new(first, &more, columns.ok_or("`columns` is not a whole number")?)
}

fn one_described(wanted: &Value) -> Result<DrawnArray, String> {
    let Value::Object(fields) = wanted else {
        return Err("`array` is not an object with `kind`, `shape` and `dtype`".into());
    };
    let field = |name: &str| fields.get(name).unwrap_or(&Value::Null);
    let kind = ArrayKind::deserialize(field("kind")).map_err(|_| {
        format!(
            "there is no kind {}; there are mesh, surface, points, image, triangles, lines",
            quoted(field("kind"))
        )
    })?;
    let (shape, number) = numbers_of(fields)?;
    let mut parts = Vec::new();
    for name in PartName::ALL {
        match fields.get(name.name()) {
            None => {}
            Some(Value::Object(fields)) => {
                let (shape, number) =
                    numbers_of(fields).map_err(|error| format!("`{}`: {error}", name.name()))?;
                parts.push((name, shape, number));
            }
            Some(_) => {
                return Err(format!("`{}` is not an object with `shape` and `dtype`", name.name()));
            }
        }
    }
    DrawnArray::new(kind, &shape, number)?.with(&parts)
}

/// Returns the shape and the type of an array or a part.
fn numbers_of(fields: &Map<String, Value>) -> Result<(Vec<u64>, Number), String> {
    let field = |name: &str| fields.get(name).unwrap_or(&Value::Null);
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
        Some(numbers) if numbers.len() <= DIMENSIONS => Ok((numbers, number)),
        Some(numbers) => {
            Err(format!("`shape` has {} dimensions: no kind has more than {DIMENSIONS}", numbers.len()))
        }
        None => Err(format!("`shape` {} is not a list of whole numbers", quoted(shape))),
    }
}

/// Returns a value for answers and for the terminal: short and safe to print.
fn quoted(value: &Value) -> String {
    short(&value.to_string(), 40)
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
            json!({"kind": "points", "shape": [7, 3], "dtype": "<f4", "colors": {"shape": [7, 4], "dtype": "|u1"},
                   "sizes": {"shape": [7], "dtype": "<f4"}}),
            json!({"kind": "image", "shape": [3, 5], "dtype": "|u1", "columns": 2,
                   "more": [{"kind": "lines", "shape": [7], "dtype": "<f4"},
                            {"kind": "points", "shape": [7, 3], "dtype": "<f4", "sizes": {"shape": [7], "dtype": "<f4"}}]}),
            json!({"kind": "triangles", "shape": [7, 4], "dtype": "<f4", "faces": {"shape": [2, 3], "dtype": "<i4"}}),
            json!({"kind": "lines", "shape": [7], "dtype": "<f4"}),
            json!({"kind": "lines", "shape": [7, 3], "dtype": "<f4", "edges": {"shape": [9, 2], "dtype": "<i4"}}),
        ] {
            let array = described(&text).unwrap();
            assert_eq!(serde_json::to_value(ArrayDescription::from(&array)).unwrap(), text);
        }
    }

    #[test]
    fn what_makes_no_sense_is_said_with_the_cure() {
        let array =
            |kind: Value, shape: Value, dtype: Value| json!({"kind": kind, "shape": shape, "dtype": dtype});
        let (image, f4) = (json!("image"), json!("<f4"));
        let image_of_four = array(image.clone(), json!([2, 2]), f4.clone());
        let several = |more: Value, columns: Value| json!({"kind": "image", "shape": [2, 2], "dtype": "<f4", "more": more, "columns": columns});
        let with = |part: &str, value: Value| json!({"kind": "triangles", "shape": [7, 3], "dtype": "<f4", part: value});
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
            (array(json!("points"), json!([1_u64 << 63, 4]), f4.clone()), "too many"),
            (array(json!("triangles"), json!([7, 3]), f4.clone()), "triangles have `faces`"),
            (with("faces", json!([2, 3])), "`faces` is not an object"),
            (with("faces", json!({"shape": [2, 3], "dtype": "<i8"})), "`faces`: there is no dtype"),
            (with("edges", json!({"shape": [2, 2], "dtype": "<i4"})), "has no `edges`"),
            (with("colors", json!({"shape": [2, 3], "dtype": "|u1"})), "there are 7 points"),
            (array(json!("image"), json!([7, 3]), json!("<i4")), "only faces and edges"),
            (several(json!(7), json!(1)), "`more` is not a list"),
            (several(json!([[]]), json!(1)), "`more` 0: `array` is not an object"),
            (
                several(json!([{"kind": "points", "shape": [7], "dtype": "<f4"}]), json!(0)),
                "`more` 0: a set of points",
            ),
            (several(json!([]), json!(2)), "only 1 arrays"),
            (several(json!([]), json!(-1)), "`columns` is not a whole number"),
            (several(json!(vec![image_of_four; 100_000]), json!(2)), "17 arrays"),
        ] {
            let error = described(&wanted).unwrap_err();
            assert!(error.contains(words) && error.len() < 300, "{words}: {error}");
        }
        let long = json!({"kind": "x".repeat(60_000), "shape": [], "dtype": "\u{1b}[2J"});
        let error = described(&long).unwrap_err();
        assert!(error.len() < 200 && !error.contains(char::is_control), "{error}");
    }
}
