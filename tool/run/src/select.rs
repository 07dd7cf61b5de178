use ash::vk::PhysicalDeviceType as Kind;
use vulkan_cuda::{DeviceUuid, find_twin, same_device};

use super::{Config, DriverThread, ProducerKind};
use wavefield_gpu::cuda::{Cuda, CudaInfo, Driver, peers};
use wavefield_gpu::machine::Machine;
use wavefield_gpu::vulkan::{Adapter, Instance, Validation, WindowSurface, version};
use wavefield_gpu::{Error, Result, report::wrap};

/// Every device of both APIs: Vulkan's, each with its CUDA twin, then the CUDA devices without one.
pub struct DeviceTable {
    rows: Vec<DeviceRow>,
    driver: Result<Driver>,
}

/// The choice does not depend on `adapter` and `cuda`, so that tests need no GPU.
struct DeviceRow {
    adapter: Option<Adapter>,
    cuda: Option<CudaInfo>,
    name: String,
    uuid: DeviceUuid,
    kind: Kind,
    /// Whether this is SwiftShader, made for browser tests: slower than Mesa's llvmpipe, without windows on
    /// X11, and with a `sin` as coarse as Vulkan allows.
    last_resort: bool,
    /// Whether Vulkan can draw with the device here. An error says why not.
    draws: Result<(), String>,
    /// Whether CUDA and Vulkan can share the device. An error says why not.
    shares: Result<(), String>,
}

#[derive(Clone)]
pub struct Choice {
    pub adapter: Adapter,
    /// `None` if the run does not use CUDA.
    pub cuda: Option<(Driver, CudaInfo)>,
    /// Set whenever both APIs can share the device, even if the run does not use CUDA.
    pub twin: Option<(Driver, CudaInfo)>,
    pub fallback: Option<String>,
}

impl Choice {
    pub fn machine(&self) -> Machine {
        Machine::describe(self.adapter.info(), self.cuda.as_ref().map(|(driver, _)| driver.version()))
    }

    pub fn can_export(&self) -> bool {
        let sharing = &self.adapter.info().sharing;
        sharing.buffer_export.is_some() && sharing.timeline_export.is_some()
    }
}

impl DeviceTable {
    /// Makes the table for runs without a window. Its adapters keep the Vulkan instance alive. A missing CUDA
    /// driver is not an error: every row gives it as the reason for not sharing.
    pub fn headless(validation: Validation) -> Result<Self> {
        let cuda = DriverThread::begin();
        let instance = Instance::new(validation, None)?;
        Self::query(&instance, None, cuda)
    }

    /// Makes the table. With a `surface`, a device can draw only if it can present to that surface.
    pub fn query(instance: &Instance, surface: Option<&WindowSurface>, cuda: DriverThread) -> Result<Self> {
        let _span = tracing::trace_span!("devices").entered();
        let adapters = instance.adapters()?;
        let (driver, cuda) = match cuda.finish() {
            Ok((driver, devices)) => (Ok(driver), devices),
            Err(error) => (Err(error), Vec::new()),
        };
        let mut rows = Vec::new();
        for adapter in adapters {
            let info = adapter.info();
            let twin = match &driver {
                Ok(_) => find_twin(&info.sharing, &cuda).map_err(|mismatch| mismatch.to_string()),
                Err(error) => Err(error.to_string()),
            };
            rows.push(DeviceRow {
                cuda: cuda.iter().find(|device| same_device(&info.sharing, device)).cloned(),
                name: info.name.clone(),
                uuid: info.sharing.uuid,
                kind: info.kind,
                last_resort: info.driver_id == ash::vk::DriverId::GOOGLE_SWIFTSHADER,
                draws: adapter.can_draw(surface),
                shares: twin.map(|_| ()),
                adapter: Some(adapter),
            });
        }
        let paired: Vec<_> =
            rows.iter().filter_map(|row| row.cuda.as_ref().map(|cuda| cuda.ordinal)).collect();
        for device in cuda.into_iter().filter(|device| !paired.contains(&device.ordinal)) {
            let unknown = || Err("no Vulkan device has its UUID".to_owned());
            rows.push(DeviceRow {
                name: device.name.clone(),
                uuid: device.uuid,
                kind: Kind::OTHER,
                last_resort: false,
                draws: unknown(),
                shares: unknown(),
                adapter: None,
                cuda: Some(device),
            });
        }
        Ok(Self { rows, driver })
    }

    /// Calls the function `choose`, and adds to its error the variables that hide drivers from the loader.
    fn row(&self, wish: Option<&str>, producer: ProducerKind) -> Result<(usize, Option<String>)> {
        choose(&self.rows, wish, producer)
            .map_err(|reason| Error::Unsupported(reason + &wavefield_gpu::advice::driver_obstacles()))
    }

    pub fn choose(&self, wish: Option<&str>, producer: ProducerKind) -> Result<Choice> {
        let (index, fallback) = self.row(wish, producer)?;
        let row = &self.rows[index];
        let adapter = row.adapter.clone();
        let adapter =
            adapter.ok_or_else(|| Error::Unsupported(format!("{} is not a Vulkan device", row.name)))?;
        let twin = match (&self.driver, &row.cuda) {
            (Ok(driver), Some(device)) if row.shares.is_ok() => Some((*driver, device.clone())),
            _ => None,
        };
        let cuda = twin.clone().filter(|_| producer.may_use_cuda());
        Ok(Choice { adapter, cuda, twin, fallback })
    }

    /// Formats the table, marking the choice, and lists peer GPUs. Uses blocks if it is wider than `width`.
    pub fn describe(&self, wish: Option<&str>, producer: ProducerKind, width: Option<usize>) -> String {
        let chosen = self.row(wish, producer).map(|(index, _)| index);
        let mut table = vec![HEADINGS.map(String::from)];
        for (index, row) in self.rows.iter().enumerate() {
            let chosen = chosen.as_ref().is_ok_and(|&chosen| chosen == index);
            table.push(row.cells(index, chosen));
        }
        let mut text = columns(&table);
        if let Some(width) = width.filter(|&width| text.lines().any(|line| line.chars().count() > width)) {
            text = blocks(&table, width);
        }
        let cuda = match &self.driver {
            Ok(driver) => format!("CUDA {} driver", driver.version()),
            Err(error) => format!("no CUDA: {error}"),
        };
        let which = match chosen {
            Ok(_) => {
                "> marks the device that would be used; --device takes #, part of a name, or a UUID".into()
            }
            Err(error) => format!("none would be used: {error}"),
        };
        let devices: Vec<_> = self.rows.iter().filter_map(|row| row.cuda.as_ref()).collect();
        let peers = self.driver.as_ref().map_or(Vec::new(), |driver| peers(*driver, &devices));
        for line in [cuda].into_iter().chain(peers).chain([which]) {
            text.push('\n');
            text.push_str(&wrap(&line, width.unwrap_or(usize::MAX), 0));
        }
        text
    }
}

impl Choice {
    /// Returns the context. If another process has the GPU to itself, `auto` goes on without CUDA.
    pub(crate) fn context(&mut self, made: Result<Option<Cuda>>, config: &Config) -> Result<Option<Cuda>> {
        match made {
            // DEVICE_UNAVAILABLE.
            Err(error @ Error::Cuda { code: 46, .. }) if config.producer == ProducerKind::Auto => {
                (self.cuda, self.fallback) = (None, Some(error.to_string()));
                self.announce_fallback();
                config.check_kernel(self)?;
                Ok(None)
            }
            made => made,
        }
    }

    pub(crate) fn announce_fallback(&self) {
        if let Some(reason) = &self.fallback {
            let name = &self.adapter.info().name;
            wavefield_gpu::note!(
                "note: no CUDA on {name} ({reason}); a Vulkan compute shader fills the field"
            );
        }
    }
}

impl DeviceRow {
    fn cells(&self, index: usize, chosen: bool) -> [String; 8] {
        let info = self.adapter.as_ref().map(|adapter| adapter.info());
        let vulkan = info.map(|info| format!("Vulkan {}", version(info.api_version)));
        let cuda = self.cuda.as_ref().map(|cuda| format!("CUDA {}", cuda.ordinal));
        let exports = info.map_or("-".to_owned(), |info| {
            let all = [
                ("buffer", info.sharing.buffer_export),
                ("timeline", info.sharing.timeline_export),
                ("binary", info.sharing.binary_export),
            ];
            let names: Vec<_> = all.iter().filter_map(|(name, kind)| kind.map(|_| *name)).collect();
            if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
        });
        let verdict = match (&self.draws, &self.shares) {
            (Err(reason), _) => reason.clone(),
            (Ok(()), Ok(())) => "shares with CUDA".into(),
            (Ok(()), Err(reason)) => format!("draws, no CUDA: {reason}"),
        };
        [
            if chosen { ">" } else { "" }.into(),
            index.to_string(),
            self.name.clone() + &info.map_or(String::new(), |info| format!(" ({})", info.kind_name())),
            vulkan.into_iter().chain(cuda).collect::<Vec<_>>().join(" + "),
            self.uuid.to_string(),
            info.map_or("-".into(), |info| info.driver.clone()),
            exports,
            verdict,
        ]
    }
}

const HEADINGS: [&str; 8] = ["", "#", "device", "APIs", "UUID", "driver", "exports", "verdict"];

/// Formats a block per device: its mark, number and name, then a line for each other cell.
fn blocks(table: &[[String; 8]], width: usize) -> String {
    let block = |row: &[String; 8]| {
        let mut lines = vec![wrap(&format!("{:1} {:>2}  {}", row[0], row[1], row[2]), width, 6)];
        let rest = HEADINGS.iter().zip(row).skip(3);
        lines.extend(rest.map(|(name, cell)| wrap(&format!("      {name:8} {cell}"), width, 15)));
        lines.join("\n")
    };
    table.iter().skip(1).map(block).collect::<Vec<_>>().join("\n")
}

/// Formats a line per device. Does not pad the last column.
fn columns(table: &[[String; 8]]) -> String {
    let width = |column: usize| table.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 7] = std::array::from_fn(width);
    let line = |row: &[String; 8]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}  "));
        cells.collect::<String>() + &row[7]
    };
    table.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Returns the row to use, and the reason if `auto` does not use CUDA.
fn choose(
    rows: &[DeviceRow],
    wish: Option<&str>,
    producer: ProducerKind,
) -> Result<(usize, Option<String>), String> {
    let candidates = match wish {
        Some(wish) => vec![named(rows, wish)?],
        None => (0..rows.len()).collect(),
    };
    let draws = |&&index: &&usize| rows[index].draws.is_ok();
    let shares = |&&index: &&usize| rows[index].draws.is_ok() && rows[index].shares.is_ok();
    // Hardware before software; devices of equal rank keep the driver's order.
    let rank = |&&index: &&usize| match rows[index].kind {
        _ if rows[index].last_resort => 5,
        Kind::DISCRETE_GPU => 0,
        Kind::INTEGRATED_GPU => 1,
        Kind::VIRTUAL_GPU => 2,
        Kind::OTHER => 3,
        _ => 4,
    };
    let sharing = candidates.iter().filter(shares).min_by_key(rank);
    let drawing = candidates.iter().filter(draws).min_by_key(rank);
    let reasons = || reasons(candidates.iter().map(|&index| &rows[index]));
    match (producer, sharing, drawing) {
        (ProducerKind::Auto | ProducerKind::Cuda, Some(&index), _) => Ok((index, None)),
        (ProducerKind::Cuda, None, _) => Err(format!(
            "--producer cuda needs a device that CUDA and Vulkan share, and there is none: {}",
            reasons()
        )),
        (ProducerKind::Auto, None, Some(&index)) => Ok((index, rows[index].shares.clone().err())),
        (_, _, Some(&index)) => Ok((index, None)),
        (_, _, None) => Err(format!("no Vulkan device here can draw: {}", reasons())),
    }
}

fn named(rows: &[DeviceRow], wish: &str) -> Result<usize, String> {
    let known = || {
        let names: Vec<_> = rows.iter().enumerate().map(|(i, row)| format!("{i}: {}", row.name)).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    };
    if let Ok(index) = wish.parse::<usize>()
        && wish.len() < 4
    {
        let known = || format!("there is no device {index}; there is {}", known());
        return (index < rows.len()).then_some(index).ok_or_else(known);
    }
    if let Some(uuid) = DeviceUuid::parse(wish) {
        let found = rows.iter().position(|row| row.uuid == uuid);
        return found.ok_or_else(|| format!("no device has the UUID {uuid}; there is {}", known()));
    }
    let lower = wish.to_lowercase();
    let found: Vec<_> =
        (0..rows.len()).filter(|&index| rows[index].name.to_lowercase().contains(&lower)).collect();
    match found.as_slice() {
        [index] => Ok(*index),
        [] => Err(format!("no device is called `{wish}`; there is {}", known())),
        _ => Err(format!("several devices match `{wish}`, choose one by number: {}", known())),
    }
}

fn reasons<'a>(rows: impl Iterator<Item = &'a DeviceRow>) -> String {
    let reason = |row: &DeviceRow| {
        let reason = row.draws.as_ref().and(row.shares.as_ref()).err();
        format!("{}: {}", row.name, reason.map_or("fine", String::as_str))
    };
    let all: Vec<_> = rows.map(reason).collect();
    if all.is_empty() { "there is no device at all".into() } else { all.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, id: u8, kind: Kind) -> DeviceRow {
        DeviceRow {
            adapter: None,
            cuda: None,
            name: name.into(),
            uuid: DeviceUuid([id; 16]),
            kind,
            last_resort: false,
            draws: Ok(()),
            shares: Ok(()),
        }
    }

    fn without_cuda(row: DeviceRow) -> DeviceRow {
        DeviceRow { shares: Err("no CUDA device has its UUID".into()), ..row }
    }

    fn rows() -> Vec<DeviceRow> {
        vec![
            without_cuda(row("llvmpipe", 1, Kind::CPU)),
            without_cuda(row("Radeon", 2, Kind::DISCRETE_GPU)),
            row("NVIDIA A", 3, Kind::DISCRETE_GPU),
            row("NVIDIA B", 4, Kind::DISCRETE_GPU),
        ]
    }

    #[test]
    fn what_is_wider_than_the_terminal_becomes_blocks() {
        let row = |cells: [&str; 8]| cells.map(String::from);
        let table = [
            row(HEADINGS),
            row([
                ">",
                "0",
                "a GPU",
                "Vulkan 1.3",
                "0011-22",
                "580.1",
                "buffer, timeline",
                "shares with CUDA in every respect",
            ]),
        ];
        let text = blocks(&table, 36);
        let wanted = "\
>  0  a GPU
      APIs     Vulkan 1.3
      UUID     0011-22
      driver   580.1
      exports  buffer, timeline
      verdict  shares with CUDA in
               every respect";
        assert_eq!(text, wanted);
    }

    #[test]
    fn auto_prefers_a_pair_then_hardware_then_software() {
        let rows = rows();
        let pick = |rows: &[DeviceRow]| choose(rows, None, ProducerKind::Auto).unwrap();
        assert_eq!(pick(&rows), (2, None));
        let (index, reason) = pick(&rows[..2]);
        assert_eq!(index, 1);
        assert!(reason.unwrap().contains("UUID"));
        assert_eq!(pick(&rows[..1]).0, 0);
    }

    #[test]
    fn swiftshader_comes_last_whatever_the_order() {
        let swiftshader = without_cuda(DeviceRow { last_resort: true, ..row("SwiftShader", 5, Kind::CPU) });
        let rows = [swiftshader, without_cuda(row("llvmpipe", 1, Kind::CPU))];
        assert_eq!(choose(&rows, None, ProducerKind::Auto).unwrap().0, 1);
        // It is chosen if it is the only one or is named.
        assert_eq!(choose(&rows[..1], None, ProducerKind::Auto).unwrap().0, 0);
        assert_eq!(choose(&rows, Some("swift"), ProducerKind::Auto).unwrap().0, 0);
    }

    #[test]
    fn cuda_is_an_error_where_it_is_missing() {
        let error = choose(&rows()[..2], None, ProducerKind::Cuda).unwrap_err().to_string();
        assert!(error.contains("llvmpipe: no CUDA device") && error.contains("Radeon"), "{error}");
        let error = choose(&rows(), Some("Radeon"), ProducerKind::Cuda).unwrap_err().to_string();
        assert!(!error.contains("llvmpipe"), "{error}");
        let error = choose(&[], None, ProducerKind::Auto).unwrap_err().to_string();
        assert!(error.contains("no device at all"), "{error}");
    }

    #[test]
    fn a_device_goes_by_number_name_or_uuid() {
        let rows = rows();
        assert_eq!(named(&rows, "3").unwrap(), 3);
        assert_eq!(named(&rows, "radeon").unwrap(), 1);
        assert_eq!(named(&rows, &rows[2].uuid.to_string()).unwrap(), 2);
        // 32 digits are a UUID, not a number.
        assert_eq!(named(&rows, &"03".repeat(16)).unwrap(), 2);
        for (wish, part) in [
            ("9", "no device 9"),
            ("nvidia", "several"),
            ("arc", "no device is called"),
            (&"ff".repeat(16), "UUID"),
        ] {
            let error = named(&rows, wish).unwrap_err().to_string();
            assert!(error.contains(part) && error.contains("0: llvmpipe"), "{error}");
        }
    }

    #[test]
    fn a_device_that_cannot_draw_is_never_taken() {
        let mut rows = rows();
        rows[2].draws = Err("cannot present to this window".into());
        assert_eq!(choose(&rows, None, ProducerKind::Auto).unwrap().0, 3);
        let error = choose(&rows, Some("2"), ProducerKind::Compute).unwrap_err().to_string();
        assert!(error.contains("cannot present"), "{error}");
    }
}
