//! Converts pictures of any size and channel order to frames of one size.

use ash::vk;

/// The order of a pixel's four bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Rgba,
    Bgra,
}

impl Order {
    /// The order in the formats of windows and files; `None` for other formats.
    pub(super) fn of(format: vk::Format) -> Option<Self> {
        match format {
            vk::Format::R8G8B8A8_SRGB | vk::Format::R8G8B8A8_UNORM => Some(Self::Rgba),
            vk::Format::B8G8R8A8_SRGB | vk::Format::B8G8R8A8_UNORM => Some(Self::Bgra),
            _ => None,
        }
    }

    fn rgb(self, [a, b, c]: [u8; 3]) -> [u8; 3] {
        match self {
            Self::Rgba => [a, b, c],
            Self::Bgra => [c, b, a],
        }
    }
}

/// The size of a film: that of its pictures, divided by the smallest whole number that keeps the longer side within `limit`.
pub(super) fn fitting(extent: vk::Extent2D, limit: u32) -> (u32, u32) {
    let by = extent.width.max(extent.height).div_ceil(limit).max(1);
    ((extent.width / by).max(1), (extent.height / by).max(1))
}

/// Converts a picture to the film's size, as opaque RGBA. A picture of another shape, after the window was resized, gets black bars.
pub(super) fn fit(pixels: &[u8], extent: vk::Extent2D, order: Order, size: (u32, u32), film: &mut Vec<u8>) {
    let ((from_width, from_height), (width, height)) = ((extent.width, extent.height), size);
    // Pixels of the picture per pixel of the film.
    let by = (f64::from(from_width) / f64::from(width)).max(f64::from(from_height) / f64::from(height));
    let whole = (from_width / width).max(1);
    let by = if (from_width / whole, from_height / whole) == size { f64::from(whole) } else { by };
    let (left, top) = (
        0.5 * (f64::from(width) - f64::from(from_width) / by).max(0.0),
        0.5 * (f64::from(height) - f64::from(from_height) / by).max(0.0),
    );
    // The range of the picture's pixels that make the film's pixel `at`; `None` in a bar.
    let span = |at: u32, bar: f64, end: u32| {
        let first = (f64::from(at) - bar.floor()) * by;
        let (first, last) = (first.floor(), (first + by).floor());
        let inside = first >= 0.0 && first < f64::from(end);
        inside.then(|| (first as u32, (last as u32).max(first as u32 + 1).min(end)))
    };
    film.clear();
    film.reserve(width as usize * height as usize * 4);
    let columns: Vec<_> = (0..width).map(|x| span(x, left, from_width)).collect();
    for y in 0..height {
        let rows = span(y, top, from_height);
        for &columns in &columns {
            let rgb = rows.zip(columns).map_or([0; 3], |(rows, columns)| {
                let mut sum = [0u32; 3];
                for row in rows.0..rows.1 {
                    let begin = 4 * (row as usize * from_width as usize + columns.0 as usize);
                    let end = begin + 4 * (columns.1 - columns.0) as usize;
                    for pixel in pixels[begin..end].chunks_exact(4) {
                        (0..3).for_each(|channel| sum[channel] += u32::from(pixel[channel]));
                    }
                }
                let count = (rows.1 - rows.0) * (columns.1 - columns.0);
                order.rgb(sum.map(|sum| ((sum + count / 2) / count) as u8))
            });
            film.extend([rgb[0], rgb[1], rgb[2], 255]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(width: u32, height: u32) -> vk::Extent2D {
        vk::Extent2D { width, height }
    }

    fn fitted(pixels: &[u8], from: vk::Extent2D, order: Order, size: (u32, u32)) -> Vec<u8> {
        let mut film = vec![7; 3];
        fit(pixels, from, order, size, &mut film);
        film
    }

    #[test]
    fn a_film_is_smaller_by_a_whole_number() {
        assert_eq!(fitting(extent(1280, 720), 640), (640, 360));
        assert_eq!(fitting(extent(640, 360), 640), (640, 360));
        assert_eq!(fitting(extent(641, 359), 640), (320, 179));
        assert_eq!(fitting(extent(720, 2000), 640), (180, 500));
        assert_eq!(fitting(extent(1, 5000), 640), (1, 625));
    }

    #[test]
    fn the_same_size_only_changes_the_order() {
        let pixels: Vec<u8> = (0..24).collect();
        let rgba = fitted(&pixels, extent(3, 2), Order::Rgba, (3, 2));
        assert_eq!(rgba[..8], [0, 1, 2, 255, 4, 5, 6, 255]);
        let bgra = fitted(&pixels, extent(3, 2), Order::Bgra, (3, 2));
        assert_eq!((bgra.len(), &bgra[20..]), (24, &[22, 21, 20, 255][..]));
    }

    #[test]
    fn a_smaller_film_has_the_mean_of_each_block() {
        // Columns after the last whole block are left out.
        let pixels: Vec<u8> =
            (0..2u8).flat_map(|y| (0..5u8).flat_map(move |x| [x * 10, y * 10, 200, 0])).collect();
        let film = fitted(&pixels, extent(5, 2), Order::Rgba, (2, 1));
        assert_eq!(film, [5, 5, 200, 255, 25, 5, 200, 255]);
    }

    #[test]
    fn another_shape_has_bars() {
        let white = vec![255; 4 * 4 * 8];
        let film = fitted(&white, extent(4, 8), Order::Rgba, (8, 8));
        let row: Vec<u8> = film[..32].chunks_exact(4).map(|pixel| pixel[0]).collect();
        assert_eq!(row, [0, 0, 255, 255, 255, 255, 0, 0]);
        let larger = vec![255; 4 * 100 * 20];
        let film = fitted(&larger, extent(100, 20), Order::Rgba, (10, 6));
        let column: Vec<u8> = film.chunks_exact(40).map(|row| row[0]).collect();
        assert_eq!(column, [0, 0, 255, 255, 0, 0]);
        let smaller = vec![255; 4 * 2];
        assert!(fitted(&smaller, extent(2, 1), Order::Rgba, (8, 4)).iter().all(|&byte| byte == 255));
    }
}
