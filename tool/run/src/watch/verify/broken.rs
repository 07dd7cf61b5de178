use ash::vk;
use wavefield_gpu::{Error, Result, report::word};
use wavefield_handoff::producer::{
    CudaTimeline, Frame, FrameSync, Produced, Producer, Profile, Source, Submit,
};

/// The part of the synchronization that `wavefield verify --break` leaves out. A check that cannot fail
/// proves nothing: without one of the waits it must find wrong frames, which also shows that the wait is
/// needed. Without the barriers it may find nothing.
///
/// Only timelines allow this, because their values grow in order even if one side is late. A binary semaphore
/// must be waited for before it is signalled again, so the run would hang without one of the waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Broken {
    /// Vulkan's submission does not wait until CUDA has written the slot.
    Ready,
    /// CUDA does not wait until Vulkan has read the slot.
    Free,
    /// Vulkan neither acquires the slot from CUDA nor releases it: the queue family ownership transfers are
    /// left out.
    Barrier,
}

impl Broken {
    pub const NEEDS: &'static str = "is for --producer cuda with --handoff timeline";
}

/// A producer without a part of its synchronization. For [`Broken::Free`], `whole` must be made with
/// [`ProducerDesc::leaves_out_free`](wavefield_handoff::producer::ProducerDesc::leaves_out_free).
pub struct BrokenProducer {
    whole: Box<dyn Producer>,
    broken: Broken,
    profile: Profile,
}

impl BrokenProducer {
    pub fn new(whole: Box<dyn Producer>, broken: Broken) -> Result<Self> {
        let mut profile = whole.profile().clone();
        if !profile.breakable {
            return Err(Error::Usage(format!(
                "--break {} {}, not for {}",
                word(broken),
                Broken::NEEDS,
                profile.name
            )));
        }
        if broken == Broken::Free {
            // Otherwise the CPU's wait for a flight would make up for the missing wait.
            profile.max_in_flight = 2 * profile.slots.len();
        }
        Ok(Self { whole, broken, profile })
    }
}

impl Producer for BrokenProducer {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn produce(&mut self, frame: &Frame) -> Result<Produced> {
        self.whole.produce(frame)
    }

    fn set_batch(&mut self, frames: usize) {
        self.whole.set_batch(frames);
    }

    fn record_before_draw(&self, commands: vk::CommandBuffer, frame: &Frame, source: Source) {
        if self.broken != Broken::Barrier {
            self.whole.record_before_draw(commands, frame, source);
        }
    }

    fn record_after_draw(&self, commands: vk::CommandBuffer, frame: &Frame, source: Source) {
        if self.broken != Broken::Barrier {
            self.whole.record_after_draw(commands, frame, source);
        }
    }

    unsafe fn submit(&mut self, submit: Submit<'_>) -> Result<()> {
        let leaves_out = self.broken == Broken::Ready;
        let mut submit =
            |sync: FrameSync| submit(FrameSync { wait: sync.wait.filter(|_| !leaves_out), ..sync });
        // SAFETY: the caller's promise. Frames may be torn; nothing worse.
        unsafe { self.whole.submit(&mut submit) }
    }

    fn cuda_timeline(&self) -> Option<&CudaTimeline> {
        self.whole.cuda_timeline()
    }

    fn is_idle(&self) -> Result<bool> {
        self.whole.is_idle()
    }

    fn progress(&self) -> Option<String> {
        self.whole.progress()
    }

    fn abandon(&mut self) {
        self.whole.abandon();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use ash::vk::Handle;
    use vulkan_cuda::ownership::Access;

    use super::*;
    use wavefield_handoff::contents::scene::Scene;
    use wavefield_handoff::producer::reads;

    /// A producer that waits, signals, and counts what it records.
    struct Whole(Profile, Rc<Cell<u32>>);

    impl Producer for Whole {
        fn profile(&self) -> &Profile {
            &self.0
        }

        unsafe fn submit(&mut self, submit: Submit<'_>) -> Result<()> {
            let semaphore = Some(vk::SemaphoreSubmitInfo::default());
            submit(FrameSync { signal_before: None, wait: semaphore, signal: semaphore })
        }

        fn record_before_draw(&self, _commands: vk::CommandBuffer, _frame: &Frame, _source: Source) {
            self.1.set(self.1.get() + 1);
        }

        fn record_after_draw(&self, _commands: vk::CommandBuffer, _frame: &Frame, _source: Source) {
            self.1.set(self.1.get() + 1);
        }
    }

    fn whole(name: &'static str, breakable: bool) -> (Box<Whole>, Rc<Cell<u32>>) {
        let records = Rc::new(Cell::new(0));
        let usual = Profile::of_queue(name, vec![vk::Buffer::from_raw(7).into(); 3]);
        let profile = Profile { breakable, ..usual };
        (Box::new(Whole(profile, records.clone())), records)
    }

    #[test]
    fn each_leaves_out_its_own_part() {
        let reads: Access = reads(Scene::Field, true);
        let frame = Frame { index: 0, time: 0.0, step: 0.0, parameters: Default::default(), reads };
        for (broken, waits, in_flight, recorded) in
            [(Broken::Ready, false, 3, 2), (Broken::Free, true, 6, 2), (Broken::Barrier, true, 3, 0)]
        {
            let (whole, records) = whole("cuda", true);
            let mut producer = BrokenProducer::new(whole, broken).unwrap();
            assert_eq!(producer.profile().max_in_flight, in_flight, "{broken:?}");
            let Produced { source, .. } = producer.produce(&frame).unwrap();
            producer.record_before_draw(vk::CommandBuffer::null(), &frame, source);
            producer.record_after_draw(vk::CommandBuffer::null(), &frame, source);
            assert_eq!(records.get(), recorded, "{broken:?}");
            let mut sync = None;
            let mut submit = |this| {
                sync = Some(this);
                Ok(())
            };
            // SAFETY: `Whole` has nothing to submit.
            unsafe { producer.submit(&mut submit) }.unwrap();
            let FrameSync { wait, signal, .. } = sync.expect("it was submitted");
            assert_eq!((wait.is_some(), signal.is_some()), (waits, true), "{broken:?}");
        }
    }

    #[test]
    fn a_producer_without_such_a_part_is_refused() {
        let refused = BrokenProducer::new(whole("cuda, binary", false).0, Broken::Ready).err().unwrap();
        let text = refused.to_string();
        assert!(
            text.contains("--break ready is for --producer cuda") && text.contains("cuda, binary"),
            "{text}"
        );
    }
}
