//! Records the start and end of each `trace_span!` in the code. Another subscriber of the `tracing` crate,
//! such as Tracy's, can be installed instead. Without a subscriber, a span costs one integer comparison.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{ThreadId, current};
use std::time::Instant;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

#[derive(Clone, Debug)]
pub struct CpuSpan {
    pub name: &'static str,
    pub frame: Option<u64>,
    /// Whether the span ran on a thread other than the one that called [`CpuSpans::new`].
    pub other_thread: bool,
    pub begin: Instant,
    pub end: Option<Instant>,
}

/// A list of at most `most` spans. Clones share the list.
#[derive(Clone)]
pub struct CpuSpans {
    spans: Arc<Mutex<Vec<CpuSpan>>>,
    most: usize,
    home: ThreadId,
}

impl CpuSpans {
    /// Allocates memory for `most` spans up front, so that recording a span never allocates.
    pub fn new(most: usize) -> Self {
        Self { spans: Arc::new(Mutex::new(Vec::with_capacity(most))), most, home: current().id() }
    }

    pub fn take(&self) -> Vec<CpuSpan> {
        self.lock().drain(..).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<CpuSpan>> {
        // A panic in another thread leaves the list intact.
        self.spans.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The id of a span that is not kept. Ids of kept spans count up from 1 and never get this large.
const NOT_KEPT: u64 = u64::MAX;

impl Subscriber for CpuSpans {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && metadata.target().starts_with("wavefield")
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        struct FrameOf(Option<u64>);
        impl Visit for FrameOf {
            fn record_u64(&mut self, field: &Field, value: u64) {
                if field.name() == "frame" {
                    self.0 = Some(value);
                }
            }
            fn record_debug(&mut self, _field: &Field, _value: &dyn std::fmt::Debug) {}
        }
        let mut frame = FrameOf(None);
        attributes.record(&mut frame);
        let other_thread = current().id() != self.home;
        let mut spans = self.lock();
        if spans.len() == self.most {
            return Id::from_u64(NOT_KEPT);
        }
        let begin = Instant::now();
        spans.push(CpuSpan {
            name: attributes.metadata().name(),
            frame: frame.0,
            other_thread,
            begin,
            end: None,
        });
        Id::from_u64(spans.len() as u64)
    }

    fn exit(&self, span: &Id) {
        let now = Instant::now();
        // The span is missing if it was not kept, or was taken before its end.
        if let Some(span) = self.lock().get_mut((span.into_u64() - 1) as usize) {
            span.end = Some(now);
        }
    }

    // Every span is entered as soon as it is created, and exited once.
    fn enter(&self, _span: &Id) {}
    fn record(&self, _span: &Id, _values: &Record<'_>) {}
    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}
    fn event(&self, _event: &Event<'_>) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_kept_in_order_up_to_the_limit() {
        let spans = CpuSpans::new(3);
        tracing::subscriber::with_default(spans.clone(), || {
            let _outer = tracing::trace_span!("outer").entered();
            tracing::trace_span!("inner", frame = 7u64).in_scope(|| ());
            let _third = tracing::trace_span!("third").entered();
            let _too_many = tracing::trace_span!("too many").entered();
        });
        let found = spans.take();
        let names: Vec<_> = found.iter().map(|span| (span.name, span.frame)).collect();
        assert_eq!(names, [("outer", None), ("inner", Some(7)), ("third", None)]);
        assert!(found.iter().all(|span| span.end.is_some_and(|end| end >= span.begin)));
        assert!(found[0].end >= found[1].end && found[0].begin <= found[1].begin);
    }

    #[test]
    fn spans_of_other_threads_are_told_apart() {
        let spans = CpuSpans::new(2);
        let note = || {
            let listener = spans.clone();
            tracing::subscriber::with_default(listener, || drop(tracing::trace_span!("work").entered()));
        };
        std::thread::scope(|scope| scope.spawn(note).join()).unwrap();
        note();
        let on_others: Vec<_> = spans.take().into_iter().map(|span| span.other_thread).collect();
        assert_eq!(on_others, [true, false]);
    }
}
