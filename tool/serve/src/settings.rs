//! The settings that a client may change while it draws: the parameters and the camera. Pure.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::protocol::short;
use wavefield_draw::{ArrayLook, Camera, ColorMap, FieldView, Fit, Label, Look, Norm};
use wavefield_gpu::report::word;
use wavefield_handoff::contents::things::MAX_THINGS;

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientParameters {
    /// The user can change these too. They stay in effect after the client leaves.
    #[serde(flatten)]
    pub field: wavefield_run::Parameters,
    pub limits: [f32; 2],
    pub size: f32,
    pub fit: Fit,
    #[serde(default = "plain", skip_serializing_if = "is_plain")]
    pub units: [f64; 2],
    #[serde(flatten)]
    pub look: Look,
}

/// The units of numbers that are drawn as they are.
fn plain() -> [f64; 2] {
    [0.0, 1.0]
}

fn is_plain(units: &[f64; 2]) -> bool {
    *units == plain()
}

impl ClientParameters {
    pub fn apply(&self, view: &mut FieldView) {
        let &Self { limits, size, fit, units, look, .. } = self;
        *view = FieldView { camera: view.camera, limits, size, fit, units, look };
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SettingsChange {
    pub speed: Option<f64>,
    pub colormap: Option<String>,
    pub paused: Option<bool>,
    pub limits: Option<[f64; 2]>,
    pub size: Option<f64>,
    pub fit: Option<FitChange>,
    pub units: Option<[f64; 2]>,
    #[serde(flatten)]
    pub look: Box<LookChange>,
    /// Of the arrays behind the first. `colormap` "" is that of the first again.
    pub more: Option<Vec<SettingsChange>>,
    /// The names of all arrays.
    pub names: Option<Vec<String>>,
}

/// A [`Look`] as a client sends it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LookChange {
    pub norm: Option<String>,
    pub linthresh: Option<f64>,
    pub invert: Option<bool>,
    pub colorbar: Option<bool>,
    pub label: Option<String>,
    pub axes: Option<bool>,
    pub extent: Option<[[f64; 2]; 3]>,
    #[serde(rename = "box")]
    pub corners: Option<[[f64; 2]; 3]>,
}

impl LookChange {
    fn apply(&self, mut look: Look) -> Result<Look, String> {
        if let Some(name) = &self.norm {
            look.norm = Norm::from_str(name, false).map_err(|_| {
                format!("there is no norm `{}`; there are linear, log and symlog", short(name, 40))
            })?;
        }
        if let Some(linthresh) = self.linthresh {
            look.linthresh = linthresh as f32;
            if !(linthresh == 0.0 || linthresh > 0.0 && look.linthresh.is_normal()) {
                return Err(format!("linthresh {linthresh} is neither 0 nor a 32-bit float above it"));
            }
        }
        if let Some(label) = &self.label {
            look.label = Label::new(label)?;
        }
        if let Some(extent) = self.extent {
            // Ticks need digits between the ends.
            let is_span = |[low, high]: &[f64; 2]| {
                (high - low).is_finite() && (high - low).abs() > 1e-12 * low.abs().max(high.abs())
            };
            if !extent.iter().all(is_span) {
                return Err(format!("extent {extent:?}: each pair must be two finite numbers that differ"));
            }
            look.extent = Some(extent);
        }
        if let Some(corners) = self.corners {
            let corners = corners.map(|ends| ends.map(|end| end as f32));
            if !corners.iter().flatten().all(|end| end.is_finite()) {
                return Err(format!("box {corners:?} has a number that is no finite 32-bit float"));
            }
            look.corners = Some(corners);
        }
        look.invert = self.invert.unwrap_or(look.invert);
        look.colorbar = self.colorbar.unwrap_or(look.colorbar);
        look.axes = self.axes.unwrap_or(look.axes);
        Ok(look)
    }
}

/// A [`Fit`] as a client sends it: a number that 32-bit floats do not hold must not end the connection.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FitChange {
    pub center: [f64; 3],
    pub radius: f64,
    #[serde(default)]
    pub aspect: f64,
}

impl SettingsChange {
    pub fn apply(&self, mut parameters: ClientParameters) -> Result<ClientParameters, String> {
        if let Some(speed) = self.speed {
            if !speed.is_finite() || speed.abs() > 1000.0 {
                return Err(format!("speed {speed} is not between -1000 and 1000"));
            }
            parameters.field.speed = speed;
        }
        if let Some(name) = &self.colormap {
            parameters.field.colormap = ColorMap::parse(name).ok_or_else(|| {
                let known = ColorMap::value_variants().iter().map(|&map| word(map)).collect::<Vec<_>>();
                format!(
                    "there is no colour map `{}`; there are {}, and # with 256 times 6 hexadecimal digits",
                    short(name, 40),
                    known.join(", ")
                )
            })?;
            if let ColorMap::Own(_) = parameters.field.colormap {
                parameters.field.own = Some(parameters.field.colormap);
            }
        }
        if let Some([low, high]) = self.limits {
            let limits = [low as f32, high as f32];
            if !limits.iter().all(|limit| limit.is_finite()) {
                return Err(format!("limits {low} and {high} are not two finite 32-bit floats"));
            }
            // Shaders multiply by the difference's inverse, and may treat denormal numbers as zero.
            let difference = limits[1] - limits[0];
            if !(difference.is_normal() && difference.recip().is_normal()) {
                return Err(format!(
                    "limits {low} and {high} are equal, or too close or too far apart for 32-bit floats"
                ));
            }
            parameters.limits = limits;
        }
        parameters.look = self.look.apply(parameters.look)?;
        if parameters.look.norm != Norm::Linear {
            parameters.look.check(parameters.limits)?;
        }
        if let Some(size) = self.size {
            if !(1.0..=64.0).contains(&size) {
                return Err(format!("size {size} is not from 1 to 64 pixels"));
            }
            parameters.size = size as f32;
        }
        if let Some(fit) = self.fit {
            parameters.fit = checked_fit(fit)?;
        }
        if let Some([offset, factor]) = self.units {
            if !(offset.is_finite() && factor.is_finite() && factor != 0.0) {
                return Err(format!(
                    "units {offset} and {factor} are not two finite numbers, the second not 0"
                ));
            }
            parameters.units = [offset, factor];
        }
        parameters.field.paused = self.paused.unwrap_or(parameters.field.paused);
        Ok(parameters)
    }

    /// Returns whether it changes a colour map, which waits for the GPU.
    pub fn has_color_map(&self) -> bool {
        let of = |change: &Self| change.colormap.as_ref().is_some_and(|name| !name.is_empty());
        of(self) || self.more.iter().flatten().any(of)
    }

    /// Returns the new names of the arrays, if there are any.
    pub fn names(&self) -> Result<Option<Vec<Label>>, String> {
        let labels =
            |names: &Vec<String>| names.iter().take(MAX_THINGS).map(|name| Label::new(name)).collect();
        self.names.as_ref().map(labels).transpose()
    }

    /// Returns how the arrays behind the first look after this change. `now`: the parameters of the first after it.
    pub fn looks(&self, mut looks: Vec<ArrayLook>, now: ClientParameters) -> Result<Vec<ArrayLook>, String> {
        let more = self.more.as_deref().unwrap_or_default();
        if more.len() > looks.len() {
            return Err(format!("`more` has {} entries for {} arrays", more.len(), looks.len()));
        }
        for (number, (now_look, wanted)) in looks.iter_mut().zip(more).enumerate() {
            let ArrayLook { limits, size, fit, units, look, map } = *now_look;
            let named = wanted.colormap.clone().filter(|name| !name.is_empty());
            let change = Self { colormap: named, ..wanted.clone() };
            let now = ClientParameters { limits, size, fit, units, look, ..now };
            let after = change.apply(now).map_err(|error| format!("`more` {number}: {error}"))?;
            let ClientParameters { field, limits, size, fit, units, look } = after;
            let map = match wanted.colormap.as_deref() {
                None => map,
                Some("") => None,
                Some(_) => Some(field.colormap),
            };
            *now_look = ArrayLook { limits, size, fit, units, look, map };
        }
        Ok(looks)
    }
}

fn checked_fit(fit: FitChange) -> Result<Fit, String> {
    let FitChange { center, radius, aspect } = fit;
    let fit =
        Fit { center: center.map(|number| number as f32), radius: radius as f32, aspect: aspect as f32 };
    if !(aspect == 0.0 || (1e-3..=1e3).contains(&aspect)) {
        return Err(format!("fit: the aspect {aspect} is neither 0 nor from 0.001 to 1000"));
    }
    // Shaders also use one over the radius, and treat denormal numbers as zero.
    if (1e-37..=1e37).contains(&radius) && fit.center.iter().all(|number| number.is_finite()) {
        return Ok(fit);
    }
    Err(format!("fit: {center:?} is not finite, or {radius} is not from 1e-37 to 1e37, as 32-bit floats"))
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CameraPlace {
    pub azimuth: f64,
    pub elevation: f64,
    pub distance: f64,
    pub target: [f64; 3],
}

impl From<Camera> for CameraPlace {
    fn from(Camera { azimuth, elevation, distance, target }: Camera) -> Self {
        // Give the `f64` of the shortest decimal that parses to the same `f32`.
        let number = |value: f32| value.to_string().parse().unwrap_or(f64::from(value));
        Self {
            azimuth: number(azimuth),
            elevation: number(elevation),
            distance: number(distance),
            target: target.to_array().map(number),
        }
    }
}

impl CameraPlace {
    pub fn camera(&self) -> Result<Camera, String> {
        let Self { azimuth, elevation, distance, target } = self;
        // A number that is too large for `f32` becomes infinite, and is rejected.
        let target = target.map(|length| length as f32);
        Camera::new(*azimuth as f32, *elevation as f32, *distance as f32, target)
            .map_err(|error| format!("camera: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::conversation::some_parameters;
    use super::*;
    use wavefield_handoff::contents::array::{ArrayKind, DrawnArray, Number};

    #[test]
    fn parameters_are_checked_whole() {
        let now = some_parameters();
        let wish = |text: &str| serde_json::from_str::<SettingsChange>(text).unwrap().apply(now);
        assert_eq!(wish("{}"), Ok(now));
        assert_eq!(
            wish(r#"{"speed": -2.5, "paused": true}"#).map(|p| (p.field.speed, p.field.paused)),
            Ok((-2.5, true))
        );
        assert_eq!(wish(r#"{"colormap": "magma"}"#).map(|p| p.field.colormap), Ok(ColorMap::Magma));
        assert_eq!(
            wish(r#"{"limits": [3, -1.5], "size": 64}"#).map(|p| (p.limits, p.size)),
            Ok(([3.0, -1.5], 64.0))
        );
        let fit = Fit { center: [500_000.0, 5_400_000.0, 300.0], radius: 0.25, aspect: 2.5 };
        assert_eq!(
            wish(&format!(r#"{{"fit": {}}}"#, serde_json::to_string(&fit).unwrap())).map(|p| p.fit),
            Ok(fit)
        );
        let units = wish(r#"{"units": [1700000000, -1e-60]}"#).unwrap();
        assert_eq!(units.units, [1.7e9, -1e-60]);
        let text = serde_json::to_string(&units).unwrap();
        assert!(text.contains(r#""units":[1700000000.0,-1e-60],"#), "{text}");
        assert_eq!(serde_json::from_str::<ClientParameters>(&text).unwrap(), units);
        let text = serde_json::to_string(&now).unwrap();
        assert!(!text.contains("units"), "a client that never set them knows none: {text}");
        assert_eq!(serde_json::from_str::<ClientParameters>(&text).unwrap(), now);
        for (text, words) in [
            (r#"{"speed": 1e9}"#, "1000"),
            (r#"{"colormap": "jet"}"#, "viridis"),
            (r#"{"limits": [1, 1]}"#, "equal"),
            (r#"{"limits": [1, 1.00000001]}"#, "too close"),
            (r#"{"limits": [0, 1e-44]}"#, "too close"),
            (r#"{"limits": [-3e38, 3e38]}"#, "too far"),
            (r#"{"limits": [0, 1e38]}"#, "too far"),
            (r#"{"limits": [0, 1e39]}"#, "finite"),
            (r#"{"units": [0, 0]}"#, "not 0"),
            (r#"{"size": 0.5}"#, "1 to 64"),
            (r#"{"size": 65}"#, "1 to 64"),
            (r#"{"fit": {"center": [0, 0, 1e39], "radius": 1}}"#, "not finite"),
            (r#"{"fit": {"center": [0, 0, 0], "radius": 0}}"#, "1e-37"),
            (r#"{"fit": {"center": [0, 0, 0], "radius": 1, "aspect": -1}}"#, "aspect -1"),
            (r#"{"fit": {"center": [0, 0, 0], "radius": 1e38}}"#, "1e37"),
            // A valid field beside it changes nothing either.
            (r#"{"paused": true, "size": -1}"#, "1 to 64"),
        ] {
            let error = wish(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn the_arrays_behind_the_first_have_the_same() {
        let array = DrawnArray::new(ArrayKind::Image, &[2, 2], Number::F32).unwrap();
        let look = ArrayLook::of(&array);
        let wish = |text: &str| {
            let change = serde_json::from_str::<SettingsChange>(text).unwrap();
            change.looks(vec![look; 2], some_parameters())
        };
        assert_eq!(wish("{}"), Ok(vec![look; 2]));
        let fit = Fit { radius: 9.0, ..Fit::default() };
        let second = ArrayLook { limits: [2.0, -2.0], fit, map: Some(ColorMap::Magma), ..look };
        let text = r#"{"more": [{}, {"limits": [2, -2], "fit": {"center": [0, 0, 0], "radius": 9}, "colormap": "magma"}]}"#;
        assert_eq!(wish(text), Ok(vec![look, second]));
        let change = serde_json::from_str::<SettingsChange>(r#"{"more": [{}, {"colormap": ""}]}"#).unwrap();
        let after = change.looks(vec![look, second], some_parameters());
        assert_eq!(after, Ok(vec![look, ArrayLook { map: None, ..second }]), "that of the first again");
        assert!(!change.has_color_map());
        // Norms and units are those of one array.
        let text = r#"{"norm": "symlog", "more": [{"norm": "log", "limits": [1, 9], "units": [5, 2], "label": "Pa"}]}"#;
        let looks = wish(text).unwrap();
        assert_eq!(
            (looks[0].look.norm, looks[0].look.label.text(), looks[0].units),
            (Norm::Log, "Pa", [5.0, 2.0])
        );
        assert_eq!(looks[1], look);
        for (text, words) in [
            (r#"{"more": [{}, {"size": 99}]}"#, "`more` 1: size 99"),
            (r#"{"more": [{}, {}, {}]}"#, "3 entries"),
            (r#"{"more": [{"norm": "log"}]}"#, "`more` 0: the norm `log` needs limits above 0"),
            (r#"{"more": [{"colormap": "jet"}]}"#, "`more` 0: there is no colour map `jet`"),
        ] {
            assert!(wish(text).unwrap_err().contains(words), "{text}");
        }
        let names = |name: &str| {
            let change = SettingsChange { names: Some(vec![name.into(); 99]), ..SettingsChange::default() };
            change.names().map(|names| names.unwrap().len())
        };
        assert_eq!(names("pressure"), Ok(MAX_THINGS));
        assert!(names("a\nb").is_err() && names(&"x".repeat(101)).is_err());
    }

    #[test]
    fn a_camera_is_where_the_mouse_could_put_it() {
        let read = |text: &str| serde_json::from_str::<CameraPlace>(text).unwrap().camera();
        let first = CameraPlace::from(Camera::default());
        assert_eq!((first.camera(), first.azimuth), (Ok(Camera::default()), 0.58));
        assert_eq!(read(&serde_json::to_string(&first).unwrap()), Ok(Camera::default()));
        let place = |a: &str, e: &str, d: &str, x: &str| {
            read(&format!(r#"{{"azimuth": {a}, "elevation": {e}, "distance": {d}, "target": [{x}, 0, 0]}}"#))
        };
        assert!(place("1", "0.5", "3", "0").is_ok());
        for (a, e, d, x) in
            [("1e39", "0", "3", "0"), ("0", "1.6", "3", "0"), ("0", "0", "0.1", "0"), ("0", "0", "3", "9")]
        {
            assert!(place(a, e, d, x).unwrap_err().starts_with("camera: "), "{a} {e} {d} {x}");
        }
    }
}
