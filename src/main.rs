//! A field of vertices that CUDA writes and Vulkan draws, through the ring of the library `vulkan-cuda`.
//!
//! Read `frame.rs` first: it has one function, which draws one frame. README.md lists the other files.

#![deny(unsafe_op_in_unsafe_fn)]
#![deny(clippy::undocumented_unsafe_blocks)]

mod draw;
mod field;
mod frame;
mod gpu;
mod instance;
mod measure;
mod objects;
mod options;
mod picture;
mod swapchain;
mod ways;
mod window;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};
use ash::vk;

use draw::{Camera, View};
use gpu::Gpu;
use instance::Instance;
use measure::{Bench, Times};
use options::{Options, must_stop, print, say};
use picture::{FORMAT, Picture, WholeFile};
use swapchain::Canvas;
use ways::Ways;

fn main() -> ExitCode {
    let Err(error) = run(&Options::read()) else { return ExitCode::SUCCESS };
    say(format_args!("error: {error:#}"));
    ExitCode::FAILURE
}

fn run(options: &Options) -> Result<()> {
    options::listen();
    if options.headless || options.output.is_some() || options.bench {
        headless(options, options.output.as_deref())?;
    } else {
        match window::connect() {
            Ok(event_loop) => {
                if let Some(times) = window::run(event_loop, options)? {
                    print(times)?;
                }
            }
            Err(reason) => {
                say(format_args!("There is no display: {reason:#}\nThis draws a picture instead: {PICTURE}"));
                if cfg!(target_os = "linux") {
                    say("In a browser: cargo run --release -p wavefield -- --web");
                }
                headless(options, Some(PICTURE.as_ref()))?;
            }
        }
    }
    match instance::validation_messages() {
        0 => Ok(()),
        count => bail!("the validation layer has written {count} messages"),
    }
}

/// The file that is written if there is no display.
const PICTURE: &str = "wavefield.png";

/// Draws frames without a window, and writes the last frame to `output` if it is given.
fn headless(options: &Options, output: Option<&Path>) -> Result<()> {
    const STEP: f64 = 1.0 / 60.0;
    let file = output.or(options.json.as_deref()).map(WholeFile::create).transpose()?;
    let instance = Instance::new(None, options.validation)?;
    let gpu = Gpu::new(instance, options, None)?;
    let [width, height] = options.size;
    let (extent, longest) = (vk::Extent2D { width, height }, gpu.limits.max_image_dimension2_d);
    if width.max(height) > longest {
        bail!("--size has a side of more than {longest} pixels, the most of {}", gpu.name);
    }
    let mut ways = Ways::new(&gpu, Canvas::Picture(Picture::new(&gpu, extent, FORMAT)?), options)?;
    let mut view = View { camera: Camera::default(), time: 0.0, step: STEP, bar: None };
    if options.bench {
        let measured = Bench::measure(&mut ways, &view, options.frames.unwrap_or(1000));
        let bench = ways.close(measured)?;
        file.map_or(Ok(()), |file| file.write(bench.json().as_bytes()))?;
        return print(&bench);
    }
    let drawn = (|| {
        let mut times = Times::default();
        for number in 0..options.frames.unwrap_or(120) {
            view.time = number as f64 * STEP;
            ways.draw(&view)?;
            // The first frames only fill the slots, so do not time them.
            if number >= ways.frames.ring() as u64 {
                times.frame();
            }
            if must_stop() {
                break;
            }
        }
        Ok((ways.frames.pixels()?, times.newest(usize::MAX)))
    })();
    let (pixels, times) = ways.close(drawn)?;
    if let (Some(file), Some(pixels)) = (file, pixels) {
        file.write(&picture::png(extent, &pixels)?)?;
    }
    times.map_or(Ok(()), print)
}
