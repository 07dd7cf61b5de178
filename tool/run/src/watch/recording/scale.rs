use ash::vk;

/// The places of red, green and blue in a pixel.
pub(super) type Order = [usize; 3];

/// Returns `None` for formats other than 8-bit RGBA and BGRA.
pub(super) fn order_of(format: vk::Format) -> Option<Order> {
    match format {
        vk::Format::R8G8B8A8_SRGB | vk::Format::R8G8B8A8_UNORM => Some([0, 1, 2]),
        vk::Format::B8G8R8A8_SRGB | vk::Format::B8G8R8A8_UNORM => Some([2, 1, 0]),
        _ => None,
    }
}

/// Divides a picture's size by the smallest whole number that keeps the longer side within `limit`.
pub(super) fn fitting(extent: vk::Extent2D, limit: u32) -> (u32, u32) {
    let by = extent.width.max(extent.height).div_ceil(limit).max(1);
    ((extent.width / by).max(1), (extent.height / by).max(1))
}

/// Converts a picture to the film's size, as opaque RGBA. Each pixel is the mean of a square of the picture.
/// A picture with another aspect ratio, as after the window was resized, gets black bars.
pub(super) fn fit(pixels: &[u8], extent: vk::Extent2D, order: Order, size: (u32, u32), film: &mut Vec<u8>) {
    let [from_width, from_height, width, height] =
        [extent.width, extent.height, size.0, size.1].map(|side| side as usize);
    // The smallest divisor that makes the picture fit. As in `fitting`, remainders are cut off.
    let by = (from_width / (width + 1)).max(from_height / (height + 1)) + 1;
    let (columns, rows) = ((from_width / by).max(1), (from_height / by).max(1));
    let corner = (height - rows) / 2 * width + (width - columns) / 2;
    film.clear();
    film.extend([0, 0, 0, 255].repeat(width * height));
    for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
        let (mut sum, mut count) = ([0; 3], 0);
        for y in row * by..((row + 1) * by).min(from_height) {
            for x in column * by..((column + 1) * by).min(from_width) {
                let pixel = &pixels[4 * (y * from_width + x)..];
                (0..3).for_each(|channel| sum[channel] += u32::from(pixel[order[channel]]));
                count += 1;
            }
        }
        let at = 4 * (corner + row * width + column);
        film[at..at + 3].copy_from_slice(&sum.map(|sum| ((sum + count / 2) / count) as u8));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RGBA: Order = [0, 1, 2];
    const BGRA: Order = [2, 1, 0];

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
        let rgba = fitted(&pixels, extent(3, 2), RGBA, (3, 2));
        assert_eq!(rgba[..8], [0, 1, 2, 255, 4, 5, 6, 255]);
        let bgra = fitted(&pixels, extent(3, 2), BGRA, (3, 2));
        assert_eq!((bgra.len(), &bgra[20..]), (24, &[22, 21, 20, 255][..]));
    }

    #[test]
    fn a_smaller_film_has_the_mean_of_each_block() {
        // Columns after the last whole block are left out.
        let pixels: Vec<u8> =
            (0..2u8).flat_map(|y| (0..5u8).flat_map(move |x| [x * 10, y * 10, 200, 0])).collect();
        let film = fitted(&pixels, extent(5, 2), RGBA, (2, 1));
        assert_eq!(film, [5, 5, 200, 255, 25, 5, 200, 255]);
    }

    #[test]
    fn another_shape_has_bars() {
        let white = vec![255; 4 * 4 * 8];
        let film = fitted(&white, extent(4, 8), RGBA, (8, 8));
        let row: Vec<u8> = film[..32].chunks_exact(4).map(|pixel| pixel[0]).collect();
        assert_eq!(row, [0, 0, 255, 255, 255, 255, 0, 0]);
        let larger = vec![255; 4 * 100 * 20];
        let film = fitted(&larger, extent(100, 20), RGBA, (10, 6));
        let column: Vec<u8> = film.chunks_exact(40).map(|row| row[0]).collect();
        assert_eq!(column, [0, 0, 255, 255, 0, 0]);
        // A smaller picture is not enlarged.
        let film = fitted(&[255; 4 * 2], extent(2, 1), RGBA, (8, 4));
        let white: Vec<_> = (0..8 * 4).filter(|&at| film[4 * at] == 255).collect();
        assert_eq!(white, [8 + 3, 8 + 4]);
        // A side that is shorter than the divisor has one pixel.
        assert!(fitted(&[255; 4 * 5000], extent(1, 5000), RGBA, (1, 625)).iter().all(|&byte| byte == 255));
    }
}
