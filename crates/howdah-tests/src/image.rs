//! Pictures to upload, drawn by PHP's GD on the command line. They are real files with real dimensions, so thumbnails
//! can be checked.

use std::process::Command;

use crate::scratch::{Scratch, run};
use howdah_machine::php;

/// Returns a JPEG of this size: a gradient with a circle.
pub fn jpeg(width: u32, height: u32) -> Vec<u8> {
    draw("imagejpeg($i, $argv[3], 85);", width, height)
}

/// Returns a PNG of this size.
pub fn png(width: u32, height: u32) -> Vec<u8> {
    draw("imagepng($i, $argv[3]);", width, height)
}

/// Returns the width and height of an encoded picture, as PHP reads them.
///
/// # Panics
/// If the bytes are not a picture.
pub fn dimensions(bytes: &[u8]) -> (u32, u32) {
    let scratch = Scratch::new("image");
    let file = scratch.write("picture", bytes);
    let said = run(Command::new(php::expand_placeholders("php{php}"))
        .args([
            "-r",
            "[$w, $h] = getimagesize($argv[1]) ?: exit(1); echo \"$w $h\";",
            "--",
        ])
        .arg(file));
    let (width, height) = said.split_once(' ').expect("two numbers");
    (
        width.parse().expect("a width"),
        height.parse().expect("a height"),
    )
}

fn draw(save: &str, width: u32, height: u32) -> Vec<u8> {
    let scratch = Scratch::new("image");
    let file = scratch.join("picture");
    let script = format!(
        "$i = imagecreatetruecolor($argv[1], $argv[2]);
         for ($y = 0; $y < $argv[2]; $y++) imageline($i, 0, $y, $argv[1], $y, imagecolorallocate($i, 255 - $y % 256, 120, $y % 256));
         imagefilledellipse($i, $argv[1] / 2, $argv[2] / 2, $argv[2] / 2, $argv[2] / 2, 0xffffff);
         {save}"
    );
    run(Command::new(php::expand_placeholders("php{php}"))
        .args(["-r", &script, "--"])
        .args([width.to_string(), height.to_string()])
        .arg(&file));
    std::fs::read(&file).expect("GD wrote the picture")
}
