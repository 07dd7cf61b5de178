//! The result of `wavefield verify`: its text, its JSON (`--json`) and its verdict.
//!
//! The types here define the JSON's fields. A renamed field or a new meaning needs a new [`VERIFY_SCHEMA`].

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Config, RunSummary, Scene};
use crate::watch::verify::slots::{SlotsFound, tolerance};
use crate::watch::verify::tally::Tally;
use crate::watch::verify::{Broken, Footprint};
use wavefield_gpu::machine::Machine;
use wavefield_gpu::{Error, Result, report::word};

pub const VERIFY_SCHEMA: &str = "wavefield-verify/1";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verification {
    pub schema: String,
    /// False if the run stopped or failed before its last frame.
    pub complete: bool,
    pub command: String,
    /// Start of the run, in seconds since 1970, UTC.
    pub started: u64,
    pub machine: Machine,
    pub producer: String,
    pub broken: Option<String>,
    pub scene: Scene,
    pub grid: [u32; 2],
    pub ring: u32,
    /// The number of frames that CUDA fills per wait; the last value if it changed.
    pub batch: u32,
    /// How often `--batch auto` changed `batch`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_changes: Option<u64>,
    pub window: bool,
    pub frames: u64,
    pub frames_per_second: f64,
    pub tally: Tally,
    pub slots: SlotsFound,
    /// After [`Footprint::SETTLED`] frames; absent in a shorter run.
    pub settled: Option<Footprint>,
    pub end: Footprint,
    pub findings: Vec<String>,
    pub verdict: Verdict,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    Clean,
    /// Something was wrong: see [`Verification::findings`].
    Found,
    /// A wait was left out on purpose, and wrong vertices or texels were found.
    Caught,
    /// A wait was left out on purpose, and nothing wrong was found: the run does not prove it necessary.
    NotCaught,
    /// The ownership transfers were left out on purpose, and nothing wrong was found, as on most hardware.
    NotObservable,
}

impl Verification {
    pub fn new(
        summary: &RunSummary,
        config: &Config,
        command: String,
        started: u64,
        window: bool,
        complete: bool,
    ) -> Option<Self> {
        let checked = summary.checked.as_ref()?;
        let mut slots = checked.slots;
        // JSON has no infinity.
        slots.worst_error = slots.worst_error.map(|worst| worst.min(f64::MAX));
        let findings = findings(config.scene, &checked.tally, &slots, checked.settled.as_ref(), &checked.end);
        Some(Self {
            schema: VERIFY_SCHEMA.to_owned(),
            complete,
            command,
            started,
            machine: checked.machine.clone(),
            producer: summary.producer.to_owned(),
            broken: config.broken.map(word),
            scene: summary.scene,
            grid: [summary.grid.cols, summary.grid.rows],
            ring: summary.ring as u32,
            batch: summary.batch as u32,
            batch_changes: summary.batch_changes,
            window,
            frames: summary.frames,
            frames_per_second: summary.times.per_second(),
            verdict: verdict(config.broken, &checked.tally, &findings),
            tally: checked.tally,
            slots,
            settled: checked.settled,
            end: checked.end,
            findings,
        })
    }

    pub fn outcome(&self) -> Result<()> {
        let broken = self.broken.as_deref().unwrap_or_default();
        match self.verdict {
            Verdict::Found => {
                Err(Error::Check(format!("the check found wrong data: {}", self.findings.join("; "))))
            }
            _ if self.frames == 0 => Err(Error::Check("no frame was drawn, so nothing was checked".into())),
            _ if !self.complete => Err(Error::Stopped(format!(
                "stopped after frame {}: what was checked so far is shown, marked incomplete",
                self.frames
            ))),
            Verdict::NotCaught => Err(Error::Check(format!(
                "--break {broken} left a wait out, and the check found nothing wrong: this run does not show that the \
                 wait is needed. Try {}",
                match broken {
                    "free" => "a larger --grid, --ring 1, or --ring 2 --batch 2, and more --frames",
                    _ => "--ring 1 with a larger --grid, and more --frames",
                }
            ))),
            Verdict::Clean | Verdict::Caught | Verdict::NotObservable => Ok(()),
        }
    }
}

fn findings(
    scene: Scene,
    tally: &Tally,
    slots: &SlotsFound,
    settled: Option<&Footprint>,
    end: &Footprint,
) -> Vec<String> {
    let mut found = tally.findings(scene.elements());
    if slots.wrong_stamps > 0 {
        let what = scene.elements();
        found.push(format!("{} {what} in the slots at the end have a wrong stamp", slots.wrong_stamps));
    }
    if let Some(worst) = slots.worst_error.filter(|&worst| worst > tolerance(scene)) {
        found.push(format!("the slots at the end differ from the reference by {}", distance(scene, worst)));
    }
    found.extend(settled.map(|settled| end.growth_since(settled)).unwrap_or_default());
    found
}

fn distance(scene: Scene, worst: f64) -> String {
    match scene {
        Scene::Field => format!("{worst:.1e} of the amplitude"),
        Scene::Texture => format!("{worst:.1e} in a channel"),
    }
}

fn verdict(broken: Option<Broken>, tally: &Tally, findings: &[String]) -> Verdict {
    match broken {
        // A check that does not reach every vertex proves nothing.
        _ if tally.unchecked_frames > 0 => Verdict::Found,
        None if findings.is_empty() => Verdict::Clean,
        None => Verdict::Found,
        Some(_) if tally.wrong_frames > 0 => Verdict::Caught,
        Some(Broken::Ready | Broken::Free) => Verdict::NotCaught,
        Some(Broken::Barrier) => Verdict::NotObservable,
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Clean => "clean",
            Self::Found => "wrong, see the error below",
            Self::Caught => "caught: without that part of the hand-off frames arrive wrong",
            Self::NotCaught => "not caught, see the error below",
            Self::NotObservable => {
                "not observable on this device, and that is no reason to leave them out: without the ownership transfers the \
                 Vulkan specification leaves the contents undefined, and a driver that compresses or caches memory for itself \
                 needs them"
            }
        })
    }
}

impl fmt::Display for Verification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (tally, total) = (&self.tally, self.tally.total());
        let scene = self.scene;
        let every = match scene {
            Scene::Field => "every vertex",
            Scene::Texture => "every texel of every level",
        };
        writeln!(f, "checked       {} frames, {every} before and after each draw", tally.frames)?;
        writeln!(f, "{:13} {} looked at", scene.elements(), total.checked)?;
        writeln!(f, "stale         {}", total.stale)?;
        writeln!(f, "overwritten   {}", total.overwritten)?;
        writeln!(f, "missing       {}", total.missing)?;
        writeln!(f, "torn          {} frames", tally.torn_frames)?;
        match self.slots.worst_error {
            _ if self.slots.slots == 0 => writeln!(f, "slots         none read back")?,
            Some(worst) => writeln!(
                f,
                "slots         {} read back, {} from the reference at the worst, {:.0e} is allowed (12 bits of {} are the stamp)",
                self.slots.slots,
                distance(scene, worst),
                tolerance(scene),
                match scene {
                    Scene::Field => "the colour",
                    Scene::Texture => "a texel",
                }
            )?,
            None => writeln!(
                f,
                "slots         {} read back, their stamps compared; there is no reference for this kernel",
                self.slots.slots
            )?,
        }
        let number = |value: Option<u64>| value.map_or("unknown".into(), |value| value.to_string());
        let mebibytes = |value: Option<u64>| {
            value.map_or("unknown".into(), |bytes| format!("{:.1} MiB", bytes as f64 / 1048576.0))
        };
        let mut row = |name, show: &dyn Fn(&Footprint) -> String| {
            let settled = |settled: &Footprint| format!("{} after frame {}, ", show(settled), settled.frame);
            let settled = self.settled.as_ref().map_or(String::new(), settled);
            writeln!(f, "{name:13} {settled}{} at the end", show(&self.end))
        };
        row("descriptors", &|footprint| number(footprint.descriptors))?;
        row("resident", &|footprint| mebibytes(footprint.resident_bytes))?;
        if self.end.device_bytes.is_some() {
            row("device memory", &|footprint| mebibytes(footprint.device_bytes))?;
        }
        if let Some(broken) = &self.broken {
            writeln!(f, "broken        {broken}")?;
            for finding in &self.findings {
                writeln!(f, "found         {finding}")?;
            }
        }
        if !self.complete {
            writeln!(f, "incomplete    the run ended before its last frame")?;
        }
        write!(f, "verdict       {}", self.verdict)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::verify::tally::{Counts, Look, Looks};

    fn tally(wrong: u64) -> Tally {
        let keys = (wrong > 0).then_some((4095, 4095));
        let look = Look { counts: Counts { checked: 100, stale: wrong, ..Counts::default() }, keys };
        let mut tally = Tally::default();
        tally.add(0, 100, &Looks { before: look, after: look });
        tally
    }

    fn found(tally: &Tally) -> Vec<String> {
        let end = Footprint {
            frame: 1,
            descriptors: None,
            resident_bytes: None,
            device_bytes: None,
            picture: [1, 1],
        };
        findings(Scene::Field, tally, &SlotsFound::default(), None, &end)
    }

    #[test]
    fn the_verdict_turns_where_something_was_broken() {
        let (clean, wrong) = (tally(0), tally(40));
        let verdict = |broken, tally| verdict(broken, tally, &found(tally));
        assert_eq!(verdict(None, &clean), Verdict::Clean);
        assert_eq!(verdict(None, &wrong), Verdict::Found);
        for broken in [Broken::Ready, Broken::Free] {
            assert_eq!(verdict(Some(broken), &clean), Verdict::NotCaught);
            assert_eq!(verdict(Some(broken), &wrong), Verdict::Caught);
        }
        assert_eq!(verdict(Some(Broken::Barrier), &clean), Verdict::NotObservable);
        assert_eq!(verdict(Some(Broken::Barrier), &wrong), Verdict::Caught);
    }

    #[test]
    fn a_check_that_left_vertices_out_is_never_a_success() {
        let mut tally = tally(0);
        tally.unchecked_frames = 1;
        for broken in [None, Some(Broken::Ready), Some(Broken::Barrier)] {
            assert_eq!(verdict(broken, &tally, &found(&tally)), Verdict::Found);
        }
    }

    fn verification(broken: Option<Broken>, tally: Tally) -> Verification {
        let findings = found(&tally);
        let text = String::new;
        Verification {
            schema: VERIFY_SCHEMA.to_owned(),
            complete: true,
            command: text(),
            started: 0,
            machine: Machine {
                software: false,
                gpu: text(),
                driver: text(),
                vulkan: text(),
                cuda: None,
                cpu: text(),
                threads: 1,
                os: text(),
                wavefield: text(),
                build: text(),
            },
            producer: text(),
            broken: broken.map(word),
            scene: Scene::Field,
            grid: [10, 10],
            ring: 1,
            batch: 1,
            batch_changes: None,
            window: false,
            frames: 1,
            frames_per_second: 1.0,
            verdict: verdict(broken, &tally, &findings),
            tally,
            slots: SlotsFound::default(),
            settled: None,
            end: Footprint {
                frame: 1,
                descriptors: None,
                resident_bytes: None,
                device_bytes: None,
                picture: [1, 1],
            },
            findings,
        }
    }

    #[test]
    fn the_outcome_says_what_to_try_where_a_break_was_not_caught() {
        assert!(verification(None, tally(0)).outcome().is_ok());
        assert!(verification(Some(Broken::Ready), tally(40)).outcome().is_ok());
        let barrier = verification(Some(Broken::Barrier), tally(0));
        assert!(barrier.outcome().is_ok() && barrier.to_string().contains("not observable on this device"));

        for (broken, part) in [(Broken::Ready, "--ring 1"), (Broken::Free, "--ring 2 --batch 2")] {
            let error = verification(Some(broken), tally(0)).outcome().unwrap_err();
            let text = error.to_string();
            assert!(text.contains(&format!("--break {}", word(broken))) && text.contains(part), "{text}");
            assert_eq!(error.exit_code(), 1);
        }
        let text = verification(None, tally(40)).outcome().unwrap_err().to_string();
        assert!(text.contains("wrong data") && text.contains("stale"), "{text}");

        let stopped = Verification { complete: false, ..verification(None, tally(0)) };
        assert!(stopped.outcome().unwrap_err().to_string().contains("marked incomplete"));
        let empty = Verification { frames: 0, ..verification(None, Tally::default()) };
        assert!(empty.outcome().unwrap_err().to_string().contains("nothing was checked"));
    }

    #[test]
    fn findings_say_what_and_how_much() {
        let text = found(&tally(40)).join("; ");
        for part in ["80 vertices were stale", "1 of 1 frames were wrong, 1 of them torn, first frame 0"] {
            assert!(text.contains(part), "{part} is missing in: {text}");
        }
        assert!(found(&tally(0)).is_empty());
    }
}
