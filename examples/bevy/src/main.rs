//! A Bevy scene: two balls and a light, and a mesh that CUDA writes. [`plugin`] has all of CUDA.

mod plugin;

use std::{sync::atomic::Ordering, time::Duration};

use bevy::camera::{RenderTarget, visibility::NoFrustumCulling};
use bevy::mesh::{Indices, PrimitiveTopology};
use bevy::prelude::*;
use bevy::render::render_resource::TextureFormat;
use bevy::render::view::screenshot::{Screenshot, ScreenshotCaptured};
use bevy::{app::ScheduleRunnerPlugin, asset::RenderAssetUsages, winit::WinitPlugin};
use plugin::{CudaPlugin, MESH, SIZE};

/// What the camera draws to without a window.
#[derive(Resource)]
struct Picture(Handle<Image>);

fn main() -> AppExit {
    let options = support::Options::read(
        "Bevy draws a mesh that a CUDA kernel writes each frame. Without --frames, it opens a window.",
        "0",
    );
    support::find(); // Without a GPU that both have, this ends the program.
    let cuda = CudaPlugin { options, ..default() };
    let mut app = App::new();
    app.add_plugins(cuda.clone());
    if cuda.options.frames == 0 {
        app.add_plugins(DefaultPlugins);
    } else {
        let again = ScheduleRunnerPlugin::run_loop(Duration::ZERO);
        app.add_plugins((DefaultPlugins.build().disable::<WinitPlugin>(), again));
        let image = Image::new_target_texture(1280, 720, TextureFormat::Rgba8UnormSrgb, None);
        let image = app.world_mut().resource_mut::<Assets<Image>>().add(image);
        app.insert_resource(Picture(image));
    }
    app.insert_resource(cuda).add_systems(Startup, scene).add_systems(Update, end).run()
}

fn scene(
    mut commands: Commands,
    (mut meshes, mut materials): (ResMut<Assets<Mesh>>, ResMut<Assets<StandardMaterial>>),
    picture: Option<Res<Picture>>,
) -> Result {
    // Bevy learns the size and the triangles of the mesh. CUDA overwrites the zeros.
    let ([cols, rows], zeros) = (SIZE, vec![[0.0f32; 3]; (SIZE[0] * SIZE[1]) as usize]);
    let corners = (0..cols * rows).filter(|i| i % cols + 1 < cols && i / cols + 1 < rows);
    let triangles = corners.flat_map(|i| [i, i + cols, i + 1, i + 1, i + cols, i + cols + 1]).collect();
    let mesh = Mesh::new(PrimitiveTopology::TriangleList, RenderAssetUsages::RENDER_WORLD)
        .with_inserted_attribute(Mesh::ATTRIBUTE_POSITION, zeros.clone())
        .with_inserted_attribute(Mesh::ATTRIBUTE_NORMAL, zeros)
        .with_inserted_indices(Indices::U32(triangles));
    meshes.insert(&MESH, mesh)?;
    let sea = MeshMaterial3d(materials.add(Color::srgb(0.1, 0.4, 0.7)));
    commands.spawn((Mesh3d(MESH), sea, NoFrustumCulling)); // Bevy does not know where CUDA's vertices are.

    let ball = meshes.add(Sphere::new(0.3));
    for (x, colour) in [(-0.8, Color::srgb(0.9, 0.3, 0.2)), (0.8, Color::srgb(0.9, 0.8, 0.2))] {
        let at = Transform::from_xyz(x, 0.6, 0.0);
        commands.spawn((Mesh3d(ball.clone()), MeshMaterial3d(materials.add(colour)), at));
    }
    let light = DirectionalLight { shadow_maps_enabled: true, ..default() };
    commands.spawn((light, Transform::from_xyz(2.0, 4.0, 1.0).looking_at(Vec3::ZERO, Vec3::Y)));
    let eye = Transform::from_xyz(0.0, 2.2, 3.4).looking_at(Vec3::ZERO, Vec3::Y);
    let target = picture.map_or_else(default, |picture| RenderTarget::Image(picture.0.clone().into()));
    commands.spawn((Camera3d::default(), eye, target));
    Ok(())
}

/// Without a window: after the last frame, takes the picture and exits.
fn end(mut commands: Commands, cuda: Res<CudaPlugin>, picture: Option<Res<Picture>>, mut asked: Local<bool>) {
    let Some(picture) = picture else { return };
    if cuda.written.load(Ordering::Relaxed) < cuda.options.frames || std::mem::replace(&mut *asked, true) {
        return;
    }
    let (failed, path) = (cuda.failed.load(Ordering::Relaxed), cuda.options.output.clone());
    let shown = move |captured: On<ScreenshotCaptured>, mut exits: MessageWriter<AppExit>| {
        let save = |path| Ok(captured.image.clone().try_into_dynamic()?.to_rgb8().save(path)?);
        let saved: Result<(), Box<dyn std::error::Error>> = path.as_ref().map_or(Ok(()), save);
        let saved = saved.inspect_err(|error| eprintln!("error: no picture: {error}"));
        exits.write(if failed || saved.is_err() { AppExit::error() } else { AppExit::Success });
    };
    commands.spawn(Screenshot::image(picture.0.clone())).observe(shown);
}
