use std::fmt;
use std::ops::RangeInclusive;

use glam::camera::rh::{proj::vulkan::perspective_infinite_reverse, view::look_at_mat4};
use glam::{Mat4, Vec3};

/// A camera that orbits a point. Angles are in radians, lengths in the field's units (the field is 2 wide).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Camera {
    /// The angle around the vertical axis; 0 looks along -z.
    pub azimuth: f32,
    /// The angle above the horizon.
    pub elevation: f32,
    pub distance: f32,
    pub target: Vec3,
}

impl Default for Camera {
    fn default() -> Self {
        Self { azimuth: 0.58, elevation: 0.52, distance: 3.3, target: TARGET }
    }
}

/// Formats the camera as an argument of `--camera`.
impl fmt::Display for Camera {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { azimuth, elevation, distance, target } = self;
        write!(f, "{azimuth},{elevation},{distance},{},{},{}", target.x, target.y, target.z)
    }
}

/// The vertical field of view, in radians.
const FIELD_OF_VIEW: f32 = 0.72;
const NEAR: f32 = 0.05;
/// Below this ratio of width to height, the view widens so that the field fits.
const NARROW: f32 = 1.35;

/// The maximum elevation, up and down: at the poles, there is no up direction.
const STEEPEST: f32 = 1.5;
const DISTANCES: RangeInclusive<f32> = 0.4..=20.0;
const FARTHEST: f32 = 3.0;

impl Camera {
    /// A low camera, so that a plane reaches from near the eye to the horizon.
    pub const ABOVE_A_PLANE: Self = Self { azimuth: 0.58, elevation: 0.24, distance: 2.4, target: TARGET };

    /// Shows all of an image from the front.
    pub const UPRIGHT: Self = Self { azimuth: 0.0, elevation: 0.0, distance: 3.3, target: Vec3::ZERO };

    pub fn new(azimuth: f32, elevation: f32, distance: f32, target: [f32; 3]) -> Result<Self, String> {
        let target = Vec3::from(target);
        // The range checks below also reject NaN.
        if !azimuth.is_finite() {
            return Err(format!("an angle of {azimuth} is not a direction"));
        }
        if !(-STEEPEST..=STEEPEST).contains(&elevation) {
            return Err(format!("an elevation of {elevation} is not from -{STEEPEST} to {STEEPEST}"));
        }
        if !DISTANCES.contains(&distance) {
            let (near, far) = (DISTANCES.start(), DISTANCES.end());
            return Err(format!("a distance of {distance} is not from {near} to {far}"));
        }
        // Rounding may let a pan end slightly beyond the limit.
        match target.length() <= FARTHEST + 1e-3 {
            true => Ok(Self { azimuth, elevation, distance, target }),
            false => Err(format!("{target} is farther than {FARTHEST} from the field's middle")),
        }
    }

    /// Rounds to four decimals, which moves nothing by more than a tenth of a pixel.
    pub fn rounded(&self) -> Self {
        let round = |number: f32| (number * 1e4).round() / 1e4;
        Self {
            azimuth: round(self.azimuth),
            elevation: round(self.elevation),
            distance: round(self.distance),
            target: self.target.map(round),
        }
    }

    pub fn eye(&self) -> Vec3 {
        let (sin_a, cos_a) = self.azimuth.sin_cos();
        let (sin_e, cos_e) = self.elevation.sin_cos();
        self.target + self.distance * Vec3::new(sin_a * cos_e, sin_e, cos_a * cos_e)
    }

    /// Returns the matrix from world to Vulkan's clip space (Y down). Depth is 1 near and 0 at infinity.
    pub fn view_projection(&self, width: u32, height: u32) -> Mat4 {
        let aspect = aspect(width, height);
        let fov = 2.0 * half_height(aspect).atan();
        perspective_infinite_reverse(fov, aspect, NEAR) * look_at_mat4(self.eye(), self.target, Vec3::Y)
    }

    /// Returns the number of pixels that a length of 1 covers at a distance of 1.
    pub(super) fn pixels_per_length(&self, width: u32, height: u32) -> f32 {
        height.max(1) as f32 / (2.0 * half_height(aspect(width, height)))
    }

    /// Turns the camera by a drag in pixels.
    pub fn orbit(&mut self, right: f32, down: f32) {
        const PER_PIXEL: f32 = 0.006;
        self.azimuth = (self.azimuth - right * PER_PIXEL).rem_euclid(std::f32::consts::TAU);
        self.elevation = (self.elevation + down * PER_PIXEL).clamp(-STEEPEST, STEEPEST);
    }

    pub fn rotate(&mut self, seconds: f32) {
        const PER_SECOND: f32 = 0.3;
        self.azimuth = (self.azimuth + seconds * PER_SECOND).rem_euclid(std::f32::consts::TAU);
    }

    /// Pans by a drag, in units of the picture's height. Points as far away as the target stay under the
    /// pointer, unless the picture is narrow.
    pub fn pan(&mut self, right: f32, down: f32) {
        let back = (self.eye() - self.target).normalize();
        let across = Vec3::Y.cross(back).normalize();
        let up = back.cross(across);
        let height = 2.0 * self.distance * (FIELD_OF_VIEW / 2.0).tan();
        self.target = (self.target + height * (down * up - right * across)).clamp_length_max(FARTHEST);
    }

    /// Pans an image by a drag, in units of half the image's longer side. The image stays under the pointer.
    pub fn slide(&mut self, right: f32, down: f32) {
        self.target = (self.target + Vec3::new(-right, down, 0.0)).clamp_length_max(FARTHEST);
    }

    /// Moves nearer (positive) or farther away, in notches of a wheel.
    pub fn zoom(&mut self, notches: f32) {
        self.distance = (self.distance * 0.9f32.powf(notches)).clamp(*DISTANCES.start(), *DISTANCES.end());
    }
}

fn aspect(width: u32, height: u32) -> f32 {
    width.max(1) as f32 / height.max(1) as f32
}

/// Returns half of the view's height at a distance of 1.
fn half_height(aspect: f32) -> f32 {
    // In a narrow picture, widen the view so that the field fits.
    (FIELD_OF_VIEW / 2.0).tan() * (NARROW / aspect).max(1.0)
}

/// Slightly below the middle of the field, to leave room for the crests.
const TARGET: Vec3 = Vec3::new(0.0, -0.2, 0.0);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_field_is_in_the_picture() {
        for (width, height) in [(1280, 720), (640, 480), (500, 900), (3000, 400)] {
            let matrix = Camera::default().view_projection(width, height);
            for corner in 0..8 {
                let sign = |bit: u32| if corner >> bit & 1 == 0 { -1.0 } else { 1.0 };
                let (x, y, z) = (sign(0), 0.3 * sign(1), sign(2));
                let clip = matrix * glam::vec4(x, y, z, 1.0);
                let at = clip / clip.w;
                assert!(at.x.abs() <= 1.0 && at.y.abs() <= 1.0, "{width}x{height}: {at}");
                assert!(at.z > 0.0 && at.z < 1.0, "reversed depth: {at}");
            }
        }
    }

    #[test]
    fn a_pan_takes_along_what_is_in_the_middle() {
        let mut camera = Camera::default();
        let before = camera;
        camera.pan(0.25, 0.1);
        // Where the old middle is now, from -1 to 1 across the height.
        let clip = camera.view_projection(1000, 500) * before.target.extend(1.0);
        let (x, y) = (clip.x / clip.w * 2.0, clip.y / clip.w);
        assert!((x - 0.5).abs() < 1e-4 && (y - 0.2).abs() < 1e-4, "{x} {y}");
        camera.pan(1e6, -1e6);
        assert!(camera.target.length() < 3.1);
    }

    #[test]
    fn many_short_turns_are_one_long_turn() {
        let (mut slow, mut fast) = (Camera::default(), Camera::default());
        slow.rotate(2.0);
        (0..200).for_each(|_| fast.rotate(0.01));
        assert!((slow.azimuth - fast.azimuth).abs() < 1e-3 && slow.azimuth != Camera::default().azimuth);
    }

    #[test]
    fn it_never_turns_over_or_leaves() {
        let mut camera = Camera::default();
        camera.orbit(100_000.0, 100_000.0);
        camera.zoom(1e6);
        assert!(camera.elevation < std::f32::consts::FRAC_PI_2 && camera.distance >= 0.4);
        camera.zoom(-1e6);
        assert!(camera.distance <= 20.0 && camera.view_projection(0, 0).is_finite());
    }
}
