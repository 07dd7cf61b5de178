//! The kernels of the gallery in double precision, written from the formulas, independently of the code. The
//! pond, whose vertices depend on earlier frames, has a simulation in `pond.rs`.

use std::f64::consts::TAU;

use wavefield_handoff::contents::gallery::GalleryEntry;
use wavefield_handoff::contents::wave::{self, Grid, WaveShape};

/// Computes `[x, y, z, w]` of a vertex from the grid, its column and row, the seconds since the start, and
/// the values of the kernel's parameters.
pub type Reference = fn(Grid, u32, u32, f64, &[f32]) -> [f64; 4];

/// The largest allowed distance of kernel and shader from the reference, in units of [`wave::HEIGHT`]. Angles
/// are single-precision numbers of up to 40 turns.
pub const TOLERANCE: f64 = 4e-5;

/// `None` if a vertex depends on earlier frames.
pub fn reference(entry: &GalleryEntry) -> Option<Reference> {
    match entry.name {
        "wave" => {
            Some(|grid, col, row, time, values| wave::reference(grid, col, row, time, WaveShape::of(values)))
        }
        "ripples" => Some(ripples::reference),
        "ocean" => Some(ocean::reference),
        "swarm" => Some(swarm::reference),
        "pond" => None,
        other => panic!("{other} has no reference"),
    }
}

/// The x and z of a vertex in the domain, which is [-1, 1] in each direction.
fn place(grid: Grid, col: u32, row: u32) -> (f64, f64) {
    let at = |index, count| 2.0 * f64::from(index) / f64::from(count - 1) - 1.0;
    (at(col, grid.cols), at(row, grid.rows))
}

/// The values of `COUNT` parameters. A missing value becomes NaN, so that no vertex agrees.
fn numbers<const COUNT: usize>(values: &[f32]) -> [f64; COUNT] {
    std::array::from_fn(|index| values.get(index).map_or(f64::NAN, |&value| value.into()))
}

/// The sine of an angle in whole turns.
fn sine(turns: f64) -> f64 {
    (TAU * turns).sin()
}

/// The cosine of an angle in whole turns.
fn cosine(turns: f64) -> f64 {
    (TAU * turns).cos()
}

mod ripples {
    use super::{Grid, cosine, numbers, place, sine};
    use wavefield_handoff::contents::wave::HEIGHT;

    /// Seconds after which the field repeats.
    const LOOP: f64 = 20.0;

    /// Where a source starts, in turns, and how often it goes across and along in a loop.
    const SOURCES: [(f64, f64, f64); 6] = [
        (0.0, 1.0, 1.0),
        (1.0 / 6.0, 2.0, 2.0),
        (2.0 / 6.0, 1.0, 3.0),
        (3.0 / 6.0, 2.0, 1.0),
        (4.0 / 6.0, 1.0, 2.0),
        (5.0 / 6.0, 2.0, 3.0),
    ];

    pub fn reference(grid: Grid, col: u32, row: u32, time: f64, values: &[f32]) -> [f64; 4] {
        let ((x, z), turn) = (place(grid, col, row), (time / LOOP).rem_euclid(1.0));
        let [amplitude, rings, spread] = numbers(values);
        let ripple = |(start, across, along): (f64, f64, f64)| {
            let source = (spread * sine(across * turn + start), spread * cosine(along * turn + start));
            let distance = (x - source.0).hypot(z - source.1);
            // One and a half new rings per second.
            0.5 * sine(rings * distance - 1.5 * LOOP * turn) / (1.0 + 10.0 * distance.powi(2))
        };
        let sum: f64 = SOURCES.into_iter().map(ripple).sum();
        [x, HEIGHT * amplitude * sum, z, 0.5 + 0.5 * sum]
    }
}

mod ocean {
    use super::{Grid, TAU, cosine, numbers, place, sine};

    /// Seconds after which the field repeats.
    const LOOP: f64 = 40.0;

    struct Sea {
        amplitude: f64,
        chop: f64,
        wind: f64,
    }

    impl Sea {
        fn of(values: &[f32]) -> Self {
            let [amplitude, chop, wind] = numbers(values);
            Self { amplitude, chop, wind }
        }

        /// The waves with these parameters applied.
        fn waves(&self) -> impl Iterator<Item = Wave> {
            let (s, c) = self.wind.to_radians().sin_cos();
            WAVES.iter().map(move |&(x, z, length, height, turns)| Wave {
                across: c * x - s * z,
                along: s * x + c * z,
                length,
                height: self.amplitude * height,
                turns,
            })
        }
    }

    struct Wave {
        across: f64,
        along: f64,
        length: f64,
        height: f64,
        turns: f64,
    }

    /// Direction (x and z), length, height, and the number of times that the wave passes in a loop.
    const WAVES: [(f64, f64, f64, f64, f64); 10] = [
        (0.960, 0.280, 1.300, 0.0420, 8.0),
        (0.600, 0.800, 0.900, 0.0250, 9.0),
        (0.936, -0.352, 0.620, 0.0150, 11.0),
        (0.352, 0.936, 0.450, 0.0090, 13.0),
        (0.800, -0.600, 0.340, 0.0060, 15.0),
        (0.996, 0.096, 0.250, 0.0040, 18.0),
        (0.280, 0.960, 0.190, 0.0028, 21.0),
        (0.744, 0.672, 0.140, 0.0019, 24.0),
        (0.936, 0.352, 0.105, 0.0013, 28.0),
        (0.480, -0.880, 0.080, 0.0009, 32.0),
    ];

    /// The position of the water that rests at (x, z).
    fn point(sea: &Sea, x: f64, z: f64, turn: f64) -> [f64; 3] {
        let mut point = [x, 0.0, z];
        for Wave { across, along, length, height, turns } in sea.waves() {
            let turns = (across * x + along * z) / length - turns * turn;
            let aside = sea.chop * height * cosine(turns);
            let moved = [across * aside, height * sine(turns), along * aside];
            point = [point[0] + moved[0], point[1] + moved[1], point[2] + moved[2]];
        }
        point
    }

    /// The normal at that point, from the derivatives of [`point`], as in the kernel. Its length is not 1.
    fn normal(sea: &Sea, x: f64, z: f64, turn: f64) -> [f64; 3] {
        let (mut a, mut b) = ([1.0, 0.0, 0.0], [0.0, 0.0, 1.0]);
        for Wave { across, along, length, height, turns } in sea.waves() {
            let turns = (across * x + along * z) / length - turns * turn;
            let aside = -sea.chop * sine(turns);
            let slope =
                [across * aside, cosine(turns), along * aside].map(|part| TAU * height / length * part);
            a = [a[0] + across * slope[0], a[1] + across * slope[1], a[2] + across * slope[2]];
            b = [b[0] + along * slope[0], b[1] + along * slope[1], b[2] + along * slope[2]];
        }
        cross(b, a)
    }

    fn cross(a: [f64; 3], b: [f64; 3]) -> [f64; 3] {
        [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
    }

    fn length([x, y, z]: [f64; 3]) -> f64 {
        x.hypot(y).hypot(z)
    }

    pub fn reference(grid: Grid, col: u32, row: u32, time: f64, values: &[f32]) -> [f64; 4] {
        let ((x, z), turn) = (place(grid, col, row), (time / LOOP).rem_euclid(1.0));
        let sea = Sea::of(values);
        let [px, y, pz] = point(&sea, x, z, turn);
        let normal = normal(&sea, x, z, turn);
        let level = normal[1] / length(normal).hypot(0.1);
        [px, y, pz, 0.4 + 2.5 * y + 1.5 * (1.0 - level)]
    }

    /// The directions have length 1, and the waves have the speed of deep-water waves of their length.
    #[test]
    fn the_waves_are_those_of_deep_water() {
        for (across, along, length, _, turns) in WAVES {
            assert!((across.hypot(along) - 1.0).abs() < 0.005, "{across}, {along}");
            assert!((turns - 9.0 / length.sqrt()).abs() < 1.0, "{length}: {turns}");
        }
    }

    /// The formula gives the normal of the surface that the points form.
    #[test]
    fn the_normal_is_that_of_the_surface() {
        let sea = Sea { amplitude: 1.0, chop: 0.85, wind: 30.0 };
        const DELTA: f64 = 1e-6;
        for index in 0..400 {
            let (x, z, turn) = (f64::from(index % 20) / 10.0 - 1.0, f64::from(index / 20) / 10.0 - 1.0, 0.3);
            let slope = |dx: f64, dz: f64| {
                let (after, before) = (point(&sea, x + dx, z + dz, turn), point(&sea, x - dx, z - dz, turn));
                [0, 1, 2].map(|axis| (after[axis] - before[axis]) / (2.0 * DELTA))
            };
            let surface = cross(slope(0.0, DELTA), slope(DELTA, 0.0));
            let formula = normal(&sea, x, z, turn);
            assert!(
                surface.iter().zip(formula).all(|(a, b)| (a - b).abs() < 1e-6),
                "{surface:?}, {formula:?}"
            );
        }
    }
}

mod swarm {
    use super::{Grid, cosine, numbers, sine};

    /// Seconds after which the field repeats.
    const LOOP: f64 = 60.0;

    fn hash(seed: u32) -> u32 {
        let state = seed.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
        let word = ((state >> ((state >> 28) + 4)) ^ state).wrapping_mul(277_803_737);
        (word >> 22) ^ word
    }

    /// The upper 24 bits of a hash as a number from 0 to 1, without 1.
    fn unit(bits: u32) -> f64 {
        f64::from(bits >> 8) / f64::from(1 << 24)
    }

    pub fn reference(grid: Grid, col: u32, row: u32, time: f64, values: &[f32]) -> [f64; 4] {
        let turn = (time / LOOP).rem_euclid(1.0);
        let a = hash(row * grid.cols + col);
        let (b, c) = (hash(a), hash(hash(a)));
        let radius = unit(c);
        let speeds = hash(c);
        let along = unit(a) + f64::from(1 + speeds % 4) * turn;
        let around = unit(b) + f64::from(3 + speeds / 4 % 8) * turn;
        let [ring, tube] = numbers(values);
        let from_middle = ring + tube * radius * cosine(around);
        [
            from_middle * cosine(along),
            tube * radius * sine(around),
            from_middle * sine(along),
            1.0 - 0.8 * radius,
        ]
    }

    /// A million particles fill a hundred parts of a range evenly, and neighbours are independent.
    #[test]
    fn the_hash_is_even_and_independent() {
        let (mut parts, mut product) = ([0u32; 100], 0.0);
        const COUNT: u32 = 1_000_000;
        for index in 0..COUNT {
            let (here, next) = (unit(hash(index)), unit(hash(index + 1)));
            parts[(100.0 * here) as usize] += 1;
            product += (here - 0.5) * (next - 0.5);
        }
        assert!(parts.iter().all(|part| (9_600..10_400).contains(part)), "{parts:?}");
        assert!((product / f64::from(COUNT)).abs() < 5e-4, "{product}");
    }
}
