//! A compute pass compares each word of a buffer: `check.wgsl`, with what an example says is right.

use vulkan_cuda_wgpu::Gpu;
use wgpu::{Buffer, BufferUsages, CommandEncoder};

/// The pass, and the number of wrong words of all frames.
pub struct Check {
    pipeline: wgpu::ComputePipeline,
    frame: Buffer,
    wrong: Buffer,
}

impl Check {
    /// `wrong_words` is the WGSL function of that name.
    pub fn new(device: &wgpu::Device, wrong_words: &str) -> Self {
        let source = wgpu::ShaderSource::Wgsl([include_str!("check.wgsl"), wrong_words].concat().into());
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor { label: None, source });
        let desc = wgpu::ComputePipelineDescriptor {
            label: None,
            layout: None,
            module: &module,
            entry_point: None,
            compilation_options: Default::default(),
            cache: None,
        };
        let buffer = |size, usage| {
            let mapped_at_creation = false;
            device.create_buffer(&wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation })
        };
        Self {
            pipeline: device.create_compute_pipeline(&desc),
            frame: buffer(16, BufferUsages::UNIFORM | BufferUsages::COPY_DST),
            wrong: buffer(4, BufferUsages::STORAGE | BufferUsages::COPY_SRC),
        }
    }

    /// Records the pass, with a thread for each element. `frame` is the `Frame` of `check.wgsl`.
    pub fn record(&self, gpu: &Gpu, encoder: &mut CommandEncoder, words: &Buffer, frame: [u32; 4]) {
        gpu.queue().write_buffer(&self.frame, 0, &frame.map(u32::to_ne_bytes).concat());
        let bound = [&self.frame, &self.wrong, words].map(Buffer::as_entire_binding);
        let entry = |(binding, resource)| wgpu::BindGroupEntry { binding, resource };
        let entries: Vec<_> = (0..).zip(bound).map(entry).collect();
        let layout = self.pipeline.get_bind_group_layout(0);
        let desc = wgpu::BindGroupDescriptor { label: None, layout: &layout, entries: &entries };
        let group = gpu.device().create_bind_group(&desc);
        let mut pass = encoder.begin_compute_pass(&Default::default());
        pass.set_pipeline(&self.pipeline);
        pass.set_bind_group(0, &group, &[]);
        pass.dispatch_workgroups((frame[0] * frame[1]).div_ceil(256), 1, 1);
    }

    /// Waits for all frames, and returns the number of wrong words.
    pub fn wrong(&self, gpu: &Gpu) -> u64 {
        u64::from(u32::from_ne_bytes(read(gpu, &self.wrong)[..4].try_into().expect("four bytes")))
    }
}

/// Waits for the queue, and returns the buffer's bytes.
pub fn read(gpu: &Gpu, buffer: &Buffer) -> Vec<u8> {
    let (tell, answer) = std::sync::mpsc::channel();
    let ask = move |bytes: Result<wgpu::util::DownloadBuffer, _>| {
        drop(tell.send(bytes.map(|bytes| bytes.to_vec())))
    };
    wgpu::util::DownloadBuffer::read_buffer(gpu.device(), gpu.queue(), &buffer.slice(..), ask);
    let timeout = Some(std::time::Duration::from_secs(10));
    gpu.device().poll(wgpu::PollType::Wait { submission_index: None, timeout }).expect("the GPU goes on");
    answer.recv().expect("the wait ends with the answer").expect("it can be mapped")
}
