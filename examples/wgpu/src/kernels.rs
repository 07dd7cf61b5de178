//! The kernels, with cudarc: all have one signature, `(out, cols, rows, frame, time)`, and the wave its parameters behind that.

use std::sync::Arc;

use anyhow::{Context, Result};
use cudarc::driver::{CudaFunction, CudaStream, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;

/// A moving surface: float4 vertices x y z and what the colour shows.
pub const WAVE: (&str, &str) = (include_str!("../../../kernels/wave.ptx"), "wave");
/// A moving texture: half4 texels with a height, its slopes, and contour lines.
pub const PAINT: (&str, &str) = (include_str!("../../../kernels/texture.ptx"), "paint");
/// What the check looks for.
pub const PATTERN: (&str, &str) = (include_str!("pattern.ptx"), "pattern");
/// The same in a texture.
pub const PATTERN_TEXELS: (&str, &str) = (include_str!("pattern.ptx"), "pattern_texels");

/// A kernel, its stream, and the size of what it writes.
pub struct Kernel {
    stream: Arc<CudaStream>,
    function: CudaFunction,
    cols: u32,
    rows: u32,
}

impl Kernel {
    pub fn load(
        stream: &Arc<CudaStream>,
        (ptx, entry): (&str, &str),
        (cols, rows): (u32, u32),
    ) -> Result<Self> {
        let module =
            stream.context().load_module(Ptx::from_src(ptx)).context("the driver refused the PTX")?;
        let function = module.load_function(entry).with_context(|| format!("the PTX lacks {entry}"))?;
        Ok(Self { stream: stream.clone(), function, cols, rows })
    }

    /// Enqueues it. `out` is an address, or a surface object.
    ///
    /// # Safety
    /// `out` is of this kernel's size, is alive until the stream has passed this, and nobody else uses it until then.
    pub unsafe fn launch(&self, out: u64, frame: u64, time: f64) -> Result<()> {
        let Self { stream, function, cols, rows } = self;
        let threads = u64::from(*cols) * u64::from(*rows);
        let (grid_dim, block_dim) = ((threads.div_ceil(256) as u32, 1, 1), (256, 1, 1));
        let mut launch = stream.launch_builder(function);
        launch.arg(&out).arg(cols).arg(rows).arg(&frame).arg(&time);
        // The amplitude and frequency of the wave; the other kernels do not read it.
        let shape = [1.0f32, 1.0];
        launch.arg(&shape);
        // SAFETY: these are the parameters that the entries have; the rest is the caller's promise.
        unsafe { launch.launch(LaunchConfig { grid_dim, block_dim, shared_mem_bytes: 0 }) }?;
        Ok(())
    }
}
