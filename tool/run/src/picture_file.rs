//! PNG files, written whole or not at all.

use std::path::Path;

use ash::vk;

use super::{Config, Engine, Scene};
use wavefield_gpu::{Result, output_file, report::word};
use wavefield_handoff::contents::array::DrawnArray;

/// Writes 8-bit sRGB pixels, four bytes each, row by row from the top. `texts` are PNG keywords with their
/// texts. The file appears under its name only once it is complete.
pub fn write_png(path: &Path, extent: vk::Extent2D, rgba: &[u8], texts: &[(&str, String)]) -> Result<()> {
    output_file::write(path, |file| {
        let encode = || -> Result<(), png::EncodingError> {
            let mut encoder = png::Encoder::new(file, extent.width, extent.height);
            encoder.set_color(png::ColorType::Rgba);
            encoder.set_depth(png::BitDepth::Eight);
            encoder.set_source_srgb(png::SrgbRenderingIntent::Perceptual);
            for (keyword, text) in texts {
                encoder.add_itxt_chunk((*keyword).to_owned(), text.clone())?;
            }
            let mut writer = encoder.write_header()?;
            writer.write_image_data(rgba)?;
            writer.finish()
        };
        encode().map_err(|error| match error {
            png::EncodingError::IoError(source) => source,
            other => std::io::Error::other(other),
        })
    })
}

/// Returns the texts for a picture's file, including the command that draws the picture again. They omit the
/// file's path, which is private and would make two files of the same frame differ. The picture is the last
/// of `frames`. If the run `serves`, there is no command, because clients may have drawn.
pub fn picture_texts(
    config: &Config,
    engine: &Engine,
    frames: u64,
    serves: bool,
) -> Vec<(&'static str, String)> {
    let (info, profile) = (engine.device().info(), engine.work.producer.profile());
    let how = match config.scene {
        Scene::Field => word(config.style),
        Scene::Texture => "plane".into(),
    };
    let what = match *engine.drawer.array() == DrawnArray::mesh(config.grid) {
        true => format!("{} {}, {how}", config.grid, config.scene.elements()),
        false => engine.drawer.array().to_string(),
    };
    let settings = format!(
        "frame {frames}, {what}, {} by {}, ring of {}, {} samples a pixel",
        word(config.color_map),
        profile.name,
        profile.slots.len(),
        config.samples.count(),
    );
    let mut texts = vec![
        ("Software", format!("wavefield {}", env!("CARGO_PKG_VERSION"))),
        ("Device", format!("{} ({})", info.name, info.driver)),
        ("Settings", settings),
    ];
    if !serves {
        let output = Some("wave.png".into());
        let shown = Config { frames: Some(frames), output, trace: None, record: None, ..config.clone() };
        texts.push(("Command", shown.command_line(true)));
    }
    texts
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::BufReader;

    use super::*;

    const SIZE: vk::Extent2D = vk::Extent2D { width: 3, height: 2 };

    #[test]
    fn what_is_written_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.png");
        let pixels: Vec<u8> = (0..24).collect();
        let texts = [("Command", "wavefield --device='Größe 1'".to_owned())];
        write_png(&path, SIZE, &pixels, &texts).unwrap();
        let file = BufReader::new(File::open(&path).unwrap());
        let mut reader = png::Decoder::new(file).read_info().unwrap();
        let mut read = [0; 24];
        let info = reader.next_frame(&mut read).unwrap();
        assert_eq!((info.width, info.height, &read[..]), (SIZE.width, SIZE.height, &pixels[..]));
        let [chunk] = &reader.info().utf8_text[..] else { panic!("no text, or two") };
        assert_eq!((chunk.keyword.as_str(), chunk.get_text().unwrap()), ("Command", texts[0].1.clone()));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
