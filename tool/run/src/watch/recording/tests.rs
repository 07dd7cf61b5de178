use std::path::Path;
use std::sync::Arc;

use super::*;
use wavefield_draw::OffscreenTarget;
use wavefield_gpu::vulkan::{
    DeviceDesc, Image, ImageDesc, Instance, Queue, Validation, ValidationLog, image_barrier, one_shot,
    pipeline_barrier,
};

/// A queue of any device, and the log of the validation layer, if that is installed.
fn queue() -> (Queue, Arc<ValidationLog>) {
    let instance = Instance::new(Validation::IfInstalled, None).unwrap();
    let adapters = instance.adapters().unwrap();
    let adapter =
        adapters.iter().find(|adapter| adapter.can_draw(None).is_ok()).expect("a device that draws");
    let queue = adapter.request_device(&DeviceDesc::default()).unwrap().1;
    (queue, instance.validation_log().clone())
}

fn config(path: &Path) -> Config {
    let (record, timeout) = (Some(path.to_owned()), Duration::from_secs(20));
    Config { record, record_side: 50, timeout, ..Config::default() }
}

fn film(device: &Device, path: &Path) -> Film {
    Film::start(device, &config(path), OffscreenTarget::FORMAT, true).unwrap().unwrap()
}

const SIZE: vk::Extent2D = vk::Extent2D { width: 100, height: 60 };

fn target(device: &Device, extent: vk::Extent2D) -> Image {
    let desc = ImageDesc {
        label: "a picture",
        extent,
        format: OffscreenTarget::FORMAT,
        levels: 1,
        samples: vk::SampleCountFlags::TYPE_1,
        usage: vk::ImageUsageFlags::TRANSFER_SRC
            | vk::ImageUsageFlags::TRANSFER_DST
            | vk::ImageUsageFlags::COLOR_ATTACHMENT,
        aspect: vk::ImageAspectFlags::COLOR,
    };
    Image::new(device, &desc).unwrap()
}

/// Fills the picture with a colour, and records it if the film wants it.
fn frame(queue: &mut Queue, film: &mut Film, target: &Image, number: u64, now: Duration) {
    let flight = (number % 2) as usize;
    // A layout other than the copy's, as in a window.
    let (image, view, extent) = (target.raw(), target.view(), target.extent());
    let picture = Picture {
        image,
        view,
        extent,
        final_layout: vk::ImageLayout::GENERAL,
        stays: false,
        takes_copies: false,
    };
    let wants = film.wants(flight, now);
    let device = queue.device().clone();
    let value = |step: u64| (number * step % 256) as f32 / 255.0;
    let color = vk::ClearColorValue { float32: [value(10), value(25), 0.5, 1.0] };
    one_shot(queue, |commands| {
        let aspect = vk::ImageAspectFlags::COLOR;
        let range = vk::ImageSubresourceRange::default().aspect_mask(aspect).level_count(1).layer_count(1);
        let all = (vk::PipelineStageFlags2::ALL_COMMANDS, vk::AccessFlags2::MEMORY_WRITE);
        let general = vk::ImageLayout::GENERAL;
        let begin = image_barrier(picture.image, (vk::ImageLayout::UNDEFINED, all), (general, all));
        let drawn =
            (vk::PipelineStageFlags2::COLOR_ATTACHMENT_OUTPUT, vk::AccessFlags2::COLOR_ATTACHMENT_WRITE);
        let end = image_barrier(picture.image, (general, all), (general, drawn));
        // SAFETY: recording; the picture is alive, and `one_shot` waits until all is done.
        unsafe {
            pipeline_barrier(&device, commands, &[], &[begin]);
            device.raw().cmd_clear_color_image(commands, picture.image, general, &color, &[range]);
            pipeline_barrier(&device, commands, &[], &[end]);
            if wants {
                film.record(commands, flight, &picture);
            }
        }
    })
    .unwrap();
}

/// Reads a GIF: its size, its repeat, and for each frame its delay in hundredths of a second and the colour
/// in the middle.
#[allow(clippy::type_complexity)] // Callers destructure it at once.
fn read_gif(path: &Path) -> ((u16, u16), ::gif::Repeat, Vec<(u16, [u8; 3])>) {
    let mut options = ::gif::DecodeOptions::new();
    options.set_color_output(::gif::ColorOutput::RGBA);
    let mut decoder = options.read_info(std::fs::File::open(path).unwrap()).unwrap();
    let size = (decoder.width(), decoder.height());
    let mut frames = Vec::new();
    while let Some(frame) = decoder.read_next_frame().unwrap() {
        assert_eq!((frame.width, frame.height), size);
        let middle = 4 * (usize::from(size.1) / 2 * usize::from(size.0) + usize::from(size.0) / 2);
        frames.push((frame.delay, frame.buffer[middle..middle + 3].try_into().unwrap()));
    }
    (size, decoder.repeat(), frames)
}

#[test]
fn a_gif_has_the_pictures_in_their_order_and_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.gif");
    let (mut queue, log) = queue();
    let device = queue.device().clone();
    let target = target(&device, SIZE);
    let mut film = film(&device, &path);
    // The film takes every third frame. The long pause at the end is shown for one second.
    for number in 0..10 {
        frame(&mut queue, &mut film, &target, number, Duration::from_nanos(16_666_667 * number));
    }
    frame(&mut queue, &mut film, &target, 10, Duration::from_secs(30));
    let recorded = film.end(true).unwrap();
    assert_eq!((recorded.frames, recorded.dropped, recorded.size), (5, 0, Some((50, 30))));
    let (size, repeat, frames) = read_gif(&path);
    assert_eq!((size, repeat), ((50, 30), ::gif::Repeat::Infinite));
    let delays: Vec<_> = frames.iter().map(|(delay, _)| *delay).collect();
    assert_eq!(delays, [5, 5, 5, 100, 4]);
    let srgb = |step: u64, number: u64| {
        let linear = (number * step % 256) as f32 / 255.0;
        let srgb = if linear <= 0.0031308 { 12.92 * linear } else { 1.055 * linear.powf(1.0 / 2.4) - 0.055 };
        (srgb * 255.0).round() as u8
    };
    for ((_, color), number) in frames.iter().zip([0, 3, 6, 9, 10]) {
        let want = [srgb(10, number), srgb(25, number), 188];
        let apart = color.iter().zip(want).map(|(got, want)| got.abs_diff(want)).max();
        assert!(apart <= Some(1), "{number}: {color:?} instead of {want:?}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "only the film is left");
    drop((film, target));
    assert!(log.verdict().is_ok(), "the validation layer found errors");
}

/// If the film's reader stops, the loop goes on without waiting.
#[cfg(unix)]
#[test]
fn frames_are_left_out_while_nobody_reads() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    // The pipe is open, and full.
    let mut options = std::fs::OpenOptions::new();
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK);
    let mut reader = options.read(true).write(true).open(&path).unwrap();
    while std::io::Write::write(&mut reader, &[0; 4096]).is_ok() {}
    let (mut queue, _) = queue();
    let device = queue.device().clone();
    let target = target(&device, SIZE);
    let timeout = Duration::from_millis(50);
    let config = Config { timeout, ..config(&path) };
    let mut film = Film::start(&device, &config, OffscreenTarget::FORMAT, false).unwrap().unwrap();
    for number in 0..100 {
        frame(&mut queue, &mut film, &target, number, Duration::from_millis(40 * number));
    }
    assert!(film.dropped >= 80 && !film.has_ended(), "{} left out", film.dropped);
    let words = film.end(true).unwrap_err().to_string();
    assert!(words.contains("nothing was read") && words.contains("pipe"), "{words}");
    // The thread is blocked in its write until now.
    drop(reader);
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_ends_the_film_and_nothing_else() {
    let (mut queue, _) = queue();
    let device = queue.device().clone();
    let target = target(&device, SIZE);
    let mut film = film(&device, Path::new("/dev/full"));
    for number in 0..1000 {
        frame(&mut queue, &mut film, &target, number, Duration::from_millis(40 * number));
    }
    assert!(film.has_ended());
    let words = film.end(true).unwrap_err().to_string();
    assert!(words.contains("cannot write /dev/full: No space left"), "{words}");
}

#[test]
fn a_film_without_frames_is_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let (queue, _) = queue();
    let start = || film(queue.device(), &folder.path().join("a.gif"));
    let recorded = start().end(true).unwrap();
    assert_eq!((recorded.frames, recorded.size), (0, None));
    let words = recorded.to_string();
    assert!(words.ends_with("a.gif: no frame was drawn, so nothing was written"), "{words}");
    drop(start());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    let odd = vk::Format::R16G16B16A16_SFLOAT;
    let words = Film::start(queue.device(), &config(Path::new("-")), odd, true).err().unwrap().to_string();
    assert!(words.contains("R16G16B16A16_SFLOAT"), "{words}");
}

#[test]
fn a_film_has_no_more_frames_than_its_rate_and_no_long_rest() {
    let mut clock = FilmClock::new(Duration::from_millis(40));
    let mut taken = Vec::new();
    for now in [5_000, 5_010, 5_038, 5_060, 5_079, 5_200, 65_200, 65_210, 65_240] {
        taken.extend(clock.frame(Duration::from_millis(now)).map(|at| at.as_millis()));
    }
    assert_eq!(taken, [0, 38, 79, 200, 1200, 1240]);
}

#[test]
fn raw_frames_come_at_an_even_rate() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("raw");
    let mut raw = raw::Raw::new(wavefield_gpu::output_file::StreamedOutput::begin(&path).unwrap(), (1, 1));
    // In thirtieths of a second: 0, 1, 1, 4, 5.
    for (byte, milliseconds) in [(1, 0), (2, 33), (3, 36), (4, 133), (5, 167)] {
        raw.frame(&[byte; 4], Duration::from_millis(milliseconds)).unwrap();
    }
    raw.end().unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let frames: Vec<_> = bytes.chunks_exact(4).map(|frame| frame[0]).collect();
    assert_eq!(frames, [1, 2, 2, 2, 4, 5]);
}
