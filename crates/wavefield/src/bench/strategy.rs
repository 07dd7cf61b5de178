//! The strategies that can be measured, and the combinations that are worth it.

use ash::vk;
use clap::ValueEnum;
use vulkan_cuda::Ring;

use super::runner::Plan;
use crate::app::{Batching, Config, ProducerKind, Scene};
use crate::handoff::Handoff;
use crate::wave::Grid;

/// One way of getting a frame from the producer to the picture, in the order of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub enum Strategy {
    /// The default.
    Auto,
    /// A ring of buffers, timelines.
    Timeline,
    /// CUDA in Vulkan's commands.
    Inline,
    /// One buffer, two semaphores.
    Binary,
    /// One buffer; the CPU waits.
    CpuSync,
    /// CUDA's memory and a copy.
    DeviceCopy,
    /// Through the CPU's memory.
    HostCopy,
    /// A Vulkan compute shader, no CUDA.
    Compute,
    /// The draw alone: a ring's slots, filled once.
    RenderOnly,
    /// The same, from exportable memory.
    RenderShared,
    /// The CUDA kernel alone.
    ProduceOnly,
}

impl Strategy {
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Compute => "compute",
            Self::RenderOnly => "render-only",
            Self::RenderShared => "render-shared",
            Self::ProduceOnly => "produce-only",
            other => other.handoff().name(),
        }
    }

    /// The hand-off that it measures; `timeline` if it has none.
    pub fn handoff(self) -> Handoff {
        match self {
            Self::Inline => Handoff::Inline,
            Self::Binary => Handoff::Binary,
            Self::CpuSync => Handoff::CpuSync,
            Self::DeviceCopy => Handoff::DeviceCopy,
            Self::HostCopy => Handoff::HostCopy,
            _ => Handoff::Timeline,
        }
    }

    /// Who fills the field.
    pub fn producer(self) -> ProducerKind {
        match self {
            Self::Compute => ProducerKind::Compute,
            Self::RenderOnly => ProducerKind::Still,
            Self::RenderShared => ProducerKind::StillShared,
            _ => ProducerKind::Cuda,
        }
    }

    /// Whether a producer writes something in every frame.
    pub(super) fn produces(self) -> bool {
        !matches!(self, Self::RenderOnly | Self::RenderShared)
    }

    /// Whether CUDA fills what it measures.
    pub fn uses_cuda(self) -> bool {
        self.producer() == ProducerKind::Cuda
    }

    /// What the strategy of this name does, in a few words: the help of the command line.
    pub(super) fn meaning(name: &str) -> String {
        let known = Self::from_str(name, false).ok().and_then(|strategy| strategy.to_possible_value());
        known.and_then(|value| value.get_help().map(ToString::to_string)).unwrap_or_default()
    }

    /// Whether the strategy of this name is a baseline: it does only a part of a frame's work, for comparison.
    pub(super) fn is_baseline(name: &str) -> bool {
        [Self::RenderOnly, Self::RenderShared, Self::ProduceOnly].map(Self::name).contains(&name)
    }

    /// Whether the strategy of this name hands frames over. A name that this version does not know counts as one that does.
    pub(super) fn has_handoff(name: &str) -> bool {
        name != Self::Compute.name() && !Self::is_baseline(name)
    }

    /// The slots of the draw alone to compare this strategy with. `inline` counts as one slot whatever its ring: its kernel runs
    /// right before the draw, which finds the slot in the GPU's cache.
    pub(super) fn slots_alone(name: &str, ring: u32) -> u32 {
        if name == Self::Inline.name() { 1 } else { ring }
    }

    pub fn has_ring(self) -> bool {
        matches!(self, Self::Timeline | Self::DeviceCopy | Self::RenderOnly)
    }

    pub fn has_batch(self) -> bool {
        self == Self::Timeline
    }
}

/// What to measure for one cell of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellPlan {
    pub strategy: Strategy,
    /// For [`Strategy::Auto`], the one that it would choose.
    pub ring: Ring,
    /// For [`Strategy::Auto`], the longest.
    pub batch: u32,
    pub grid: Grid,
}

impl CellPlan {
    pub fn name(&self) -> String {
        let Self { strategy, ring, batch, grid: Grid { cols, rows } } = self;
        format!("{}, ring {}, batch {batch}, {cols}x{rows}", strategy.name(), ring.depth())
    }

    /// The ring that the draw alone must have for a fair comparison with this cell.
    pub(super) fn ring_alone(&self) -> Ring {
        Ring::new(Strategy::slots_alone(self.strategy.name(), self.ring.depth() as u32)).unwrap_or_default()
    }

    /// Frames before the measured ones. [`Strategy::Auto`] needs more, so that its batch settles.
    pub(super) fn warmup(&self, plan: &Plan) -> u64 {
        match self.strategy {
            Strategy::Auto => plan.warmup_frames.max(128),
            _ => plan.warmup_frames,
        }
    }

    pub fn config(&self, base: &Config, size: vk::Extent2D) -> Config {
        Config {
            producer: self.strategy.producer(),
            // Only CUDA can run it.
            kernel: base.kernel.clone().filter(|_| self.strategy.uses_cuda()),
            handoff: self.strategy.handoff(),
            ring: Some(self.ring).filter(|_| self.strategy != Strategy::Auto),
            batch: match self.strategy {
                Strategy::Auto => Batching::default(),
                _ => Batching::Fixed(self.batch),
            },
            grid: self.grid,
            size,
            output: None,
            ..base.clone()
        }
    }
}

/// The cells of a run: every ring and batch for `timeline`, every ring for `device-copy`, one cell for each other strategy.
/// `render-only` has the rings that the others need (`Strategy::slots_alone`).
pub fn plan(
    scene: Scene,
    strategies: &[Strategy],
    grids: &[Grid],
    rings: &[u32],
    batches: &[u32],
) -> Vec<CellPlan> {
    let mut cells = Vec::new();
    let asked: Vec<Ring> = rings.iter().filter_map(|&depth| Ring::new(depth)).collect();
    for &grid in grids {
        let of = |strategy: Strategy| -> Vec<CellPlan> {
            let cell = |ring, batch| CellPlan { strategy, ring, batch, grid };
            if strategy == Strategy::Auto {
                let (ring, _) = Config { scene, grid, ..Config::default() }.ring_of(Handoff::Timeline);
                return vec![cell(ring, ring.depth() as u32)];
            }
            if !strategy.has_ring() {
                let ring = if strategy.handoff().has_one_slot() { Ring::ONE } else { Ring::default() };
                return vec![cell(ring, 1)];
            }
            let batches = if strategy.has_batch() { batches } else { &[1] };
            let fitting = |&ring: &Ring| {
                let fitting = batches.iter().filter(move |&&batch| batch as usize <= ring.depth());
                fitting.map(move |&batch| cell(ring, batch))
            };
            asked.iter().flat_map(fitting).collect()
        };
        let others = strategies.iter().filter(|&&strategy| strategy != Strategy::RenderOnly);
        let mut used: Vec<Ring> = others.flat_map(|&other| of(other)).map(|cell| cell.ring_alone()).collect();
        if used.is_empty() {
            used.clone_from(&asked);
        }
        used.sort_by_key(|ring| ring.depth());
        used.dedup_by_key(|ring| ring.depth());
        for &strategy in strategies {
            match strategy {
                Strategy::RenderOnly => {
                    cells.extend(used.iter().map(|&ring| CellPlan { strategy, ring, batch: 1, grid }));
                }
                _ => cells.extend(of(strategy)),
            }
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRID: Grid = Grid { cols: 64, rows: 64 };

    #[test]
    fn rings_and_batches_multiply_only_where_they_mean_something() {
        let cells = plan(Scene::Field, Strategy::value_variants(), &[GRID], &[1, 3, 8], &[1, 4]);
        let count = |strategy| cells.iter().filter(|cell| cell.strategy == strategy).count();
        // Rings of 1 and 3 do not hold a batch of 4.
        assert_eq!(count(Strategy::Timeline), 4);
        assert_eq!(count(Strategy::DeviceCopy), 3);
        assert_eq!(count(Strategy::Binary), 1);
        // Rings of 1, 3 and 8, and the one that `auto` chooses.
        assert_eq!(count(Strategy::RenderOnly), 4);
        assert_eq!(cells.len(), 4 + 3 + 4 + (Strategy::value_variants().len() - 3));
    }

    #[test]
    fn the_draw_alone_is_measured_with_every_ring_that_is_measured() {
        let rings = |strategies: &[Strategy]| -> Vec<usize> {
            let cells = plan(Scene::Field, strategies, &[GRID], &[1, 8], &[1]);
            let alone = cells.iter().filter(|cell| cell.strategy == Strategy::RenderOnly);
            alone.map(|cell| cell.ring.depth()).collect()
        };
        assert_eq!(rings(&[Strategy::RenderOnly, Strategy::Timeline, Strategy::Compute]), [1, 3, 8]);
        assert_eq!(rings(&[Strategy::Binary, Strategy::RenderOnly]), [1]);
        assert_eq!(rings(&[Strategy::Inline, Strategy::RenderOnly]), [1]);
        assert_eq!(rings(&[Strategy::RenderOnly]), [1, 8], "on its own, those that were asked for");
    }

    #[test]
    fn names_are_those_of_the_command_line_and_their_meanings_fit_the_chart() {
        for strategy in Strategy::value_variants() {
            let value = strategy.to_possible_value().unwrap();
            assert_eq!(value.get_name(), strategy.name());
            let fits = (1..=28).contains(&Strategy::meaning(strategy.name()).len());
            assert!(fits || !Strategy::has_handoff(strategy.name()), "{strategy:?}");
        }
    }
}
