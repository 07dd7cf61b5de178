//! Launches the kernels with cudarc. Those that write have the signature `(out, cols, rows, frame, time)`;
//! the wave also takes parameters. Those that check take their counters instead of the time.

use std::sync::Arc;

use anyhow::{Context, Result};
use cudarc::driver::{CudaFunction, CudaStream, DeviceRepr, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;

/// A moving surface: float4 vertices, x y z and the position in the colour map.
pub const WAVE: (&str, &str) = (include_str!("../../../kernels/wave.ptx"), "wave");
/// A moving texture: half4 texels with a height, its slopes, and contour lines.
pub const PAINT: (&str, &str) = (include_str!("../../../tool/handoff/kernels/texture.ptx"), "paint");
/// The pattern that the check expects.
pub const PATTERN: (&str, &str) = (include_str!("pattern.ptx"), "pattern");
/// The same pattern in a texture.
pub const PATTERN_TEXELS: (&str, &str) = (include_str!("pattern.ptx"), "pattern_texels");

/// The check of that pattern: counts the words, and the wrong ones.
pub const CHECK: (&str, &str) = (include_str!("pattern.ptx"), "check_pattern");
/// The same in a texture.
pub const CHECK_TEXELS: (&str, &str) = (include_str!("pattern.ptx"), "check_pattern_texels");

/// A kernel, its stream, and the size of the slots.
pub struct Kernel {
    pub stream: Arc<CudaStream>,
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

    /// Enqueues the kernel. `slot` is an address or a surface object. `last` is the time, or the address of
    /// the counters.
    ///
    /// # Safety
    /// `slot` must have this kernel's size, and `last` be what the kernel takes. Both must stay alive, and nothing else may
    /// write them, until the stream has passed this point.
    pub unsafe fn launch<T: DeviceRepr>(&self, slot: u64, frame: u64, last: T) -> Result<()> {
        let Self { stream, function, cols, rows } = self;
        let threads = u64::from(*cols) * u64::from(*rows);
        let (grid_dim, block_dim) = ((threads.div_ceil(256) as u32, 1, 1), (256, 1, 1));
        let mut launch = stream.launch_builder(function);
        launch.arg(&slot).arg(cols).arg(rows).arg(&frame).arg(&last);
        // The amplitude and frequency of the wave. The other kernels do not read it.
        let shape = [1.0f32, 1.0];
        launch.arg(&shape);
        // SAFETY: the entries have these parameters; the rest is the caller's promise.
        unsafe { launch.launch(LaunchConfig { grid_dim, block_dim, shared_mem_bytes: 0 }) }?;
        Ok(())
    }
}
