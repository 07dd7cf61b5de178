//! The strategies that can be measured, and the combinations that are worth measuring.

use std::sync::LazyLock;
use std::time::Duration;

use ash::vk;
use clap::ValueEnum;
use clap::builder::PossibleValue;
use vulkan_cuda::Ring;
use wavefield_handoff::Handoff;
use wavefield_handoff::contents::wave::Grid;
use wavefield_run::{Batching, Config, ProducerKind, Scene};

/// One way of getting a frame from the producer to the picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// The default: `timeline`, with ring and batch chosen automatically.
    Auto,
    Handoff(Handoff),
    /// A Vulkan compute shader on the same device, without interop.
    Compute,
    /// The draw alone. It draws a ring's slots in turn. They are in ordinary device memory, and were filled
    /// once.
    RenderOnly,
    /// The draw alone, from memory that could be shared with CUDA but is not.
    RenderShared,
    /// The CUDA kernel alone, into shared memory.
    ProduceOnly,
}

impl ValueEnum for Strategy {
    fn value_variants<'a>() -> &'a [Self] {
        static ALL: LazyLock<Vec<Strategy>> = LazyLock::new(|| {
            let others =
                [Strategy::Compute, Strategy::RenderOnly, Strategy::RenderShared, Strategy::ProduceOnly];
            let handoffs = Handoff::ALL.into_iter().map(Strategy::Handoff);
            std::iter::once(Strategy::Auto).chain(handoffs).chain(others).collect()
        });
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let (name, help) = self.words();
        Some(PossibleValue::new(name).help(help))
    }
}

impl Strategy {
    pub const TIMELINE: Self = Self::Handoff(Handoff::Timeline);
    pub const INLINE: Self = Self::Handoff(Handoff::Inline);

    /// Returns the name, and a few words for the command line and the table.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Auto => ("auto", "The default"),
            Self::Handoff(handoff) => (handoff.name(), handoff.in_brief()),
            Self::Compute => ("compute", "A Vulkan compute shader, no CUDA"),
            Self::RenderOnly => ("render-only", "The draw alone: a ring's slots, filled once"),
            Self::RenderShared => ("render-shared", "The same, from exportable memory"),
            Self::ProduceOnly => ("produce-only", "The CUDA kernel alone"),
        }
    }

    pub fn name(self) -> &'static str {
        self.words().0
    }

    /// Returns the hand-off, or `timeline` for a strategy that has none.
    pub fn handoff(self) -> Handoff {
        match self {
            Self::Handoff(handoff) => handoff,
            _ => Handoff::Timeline,
        }
    }

    pub fn producer(self) -> ProducerKind {
        match self {
            Self::Compute => ProducerKind::Compute,
            Self::RenderOnly => ProducerKind::Still,
            Self::RenderShared => ProducerKind::StillShared,
            _ => ProducerKind::Cuda,
        }
    }

    pub(super) fn produces(self) -> bool {
        !matches!(self, Self::RenderOnly | Self::RenderShared)
    }

    pub fn uses_cuda(self) -> bool {
        self.producer() == ProducerKind::Cuda
    }

    pub(super) fn meaning(name: &str) -> String {
        Self::from_str(name, false).map_or(String::new(), |strategy| strategy.words().1.to_owned())
    }

    /// Returns whether the strategy of this name has a hand-off. Returns true for a name that this version
    /// does not know.
    pub(super) fn has_handoff(name: &str) -> bool {
        ![Self::Compute, Self::RenderOnly, Self::RenderShared, Self::ProduceOnly]
            .map(Self::name)
            .contains(&name)
    }

    /// Returns the number of slots of the `render-only` cell to compare a cell with: `ring`, but 1 for
    /// `inline`. The kernel of `inline` runs right before the draw, which then finds the slot in the GPU's
    /// cache.
    pub(super) fn slots_alone(name: &str, ring: u32) -> u32 {
        if name == Self::INLINE.name() { 1 } else { ring }
    }

    pub fn has_ring(self) -> bool {
        matches!(self, Self::TIMELINE | Self::Handoff(Handoff::DeviceCopy) | Self::RenderOnly)
    }
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub cells: Vec<CellPlan>,
    pub rounds: u32,
    pub warmup_frames: u64,
    pub round: Duration,
    pub size: vk::Extent2D,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellPlan {
    pub strategy: Strategy,
    /// For [`Strategy::Auto`], the ring that it would choose.
    pub ring: Ring,
    /// For [`Strategy::Auto`], the longest possible batch.
    pub batch: u32,
    pub grid: Grid,
}

impl CellPlan {
    /// Returns the ring that `render-only` needs for a fair comparison with this cell.
    pub(super) fn ring_alone(&self) -> Ring {
        Ring::new(Strategy::slots_alone(self.strategy.name(), self.ring.depth() as u32)).unwrap_or_default()
    }

    pub fn config(&self, base: &Config, size: vk::Extent2D) -> Config {
        Config {
            producer: self.strategy.producer(),
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

/// Returns the cells of each grid: every ring and batch for `timeline`, every ring for `device-copy`, and one
/// cell for each other strategy. `render-only` gets the rings that the other cells are compared with
/// (`Strategy::slots_alone`).
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
            let batches = if strategy == Strategy::TIMELINE { batches } else { &[1] };
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
        assert_eq!(count(Strategy::TIMELINE), 4);
        assert_eq!(count(Strategy::Handoff(Handoff::DeviceCopy)), 3);
        assert_eq!(count(Strategy::Handoff(Handoff::Binary)), 1);
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
        assert_eq!(rings(&[Strategy::RenderOnly, Strategy::TIMELINE, Strategy::Compute]), [1, 3, 8]);
        assert_eq!(rings(&[Strategy::Handoff(Handoff::Binary), Strategy::RenderOnly]), [1]);
        assert_eq!(rings(&[Strategy::INLINE, Strategy::RenderOnly]), [1]);
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
