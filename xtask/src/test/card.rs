//! Checks the image of a card with programs that share no code with this one: its partition table, its file system, its
//! files. The kernel that they extract must boot.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, anyhow, ensure};
use cargo_kprobes::image;

use super::{
    capture::capture,
    pool::BuildContext,
    report::Outcome,
    select::{Demands, Trait},
    session::{Player, Session},
    target::{Candidate, Targets},
};
use crate::{
    board::{BASE, Board, Overrides},
    dialogue::converse,
    flash, setup, workspace,
};

/// The offset of the boot partition in bytes, as it is given to the tools: 4 MiB.
const START: usize = 4 << 20;

/// Adds the tests of the cards, with the image of the kernel, for all boards that have a card.
pub fn add<'a>(context: &BuildContext<'_, 'a>, targets: &'a Targets<'a>, kernel: &Path) {
    targets.add_each(context, "card::machine", |index, named| {
        let (board, kernel) = (named.board, kernel.to_path_buf());
        let image = move || image_is_right(board, &kernel, targets.seconds).map(|()| Outcome::Passed);
        let test = || Candidate::try_new(index, "card::image", Demands::on(&[Trait::Board]), image);
        Ok((named.is_base() && board.has_card()).then(test).into_iter().collect())
    });
}

fn image_is_right(board: &Board, kernel: &Path, seconds: u64) -> Result<()> {
    setup::tools()?;
    let kernel = fs::read(kernel).with_context(|| format!("{} cannot be read", kernel.display()))?;
    let directory = workspace::root().join("target/cards");
    fs::create_dir_all(&directory).with_context(|| format!("{} cannot be made", directory.display()))?;
    let file = |what: &str| directory.join(format!("{}-{what}", board.name));

    let (card, partition) = (file("card.img"), file("partition.img"));
    let bytes = flash::card_image(board, &kernel, None)?;
    image::write_bytes(&bytes, &card)?;
    image::write_bytes(&bytes[START..], &partition)?;

    let table = run(setup::tool_command("sfdisk").arg("--dump").arg(&card))?;
    let partitions: Vec<_> = table.lines().filter(|line| line.contains(" start=")).collect();
    let [line] = partitions[..] else { return Err(anyhow!("sfdisk sees {} partitions:\n{table}", partitions.len())) };
    let words: String = line.split_whitespace().collect();
    ensure!(words.contains("start=8192,") && words.contains("type=c"), "sfdisk sees {line:?}");
    run(setup::tool_command("fsck.fat").arg("-n").arg(&partition))?;

    let copy = |name: &str, to: &Path| {
        let from = format!("{}@@4M", card.display());
        run(setup::tool_command("mcopy").args(["-n", "-o", "-i", &from, &format!("::{name}")]).arg(to))?;
        fs::read(to).with_context(|| format!("{} cannot be read", to.display()))
    };
    for name in &board.sd()?.firmware {
        ensure!(!copy(name, &file("firmware"))?.is_empty(), "{name} is empty");
    }
    let config = String::from_utf8(copy(flash::CONFIG, &file("config.txt"))?)?;
    ensure!(config.contains("kernel=kernel8.img"), "config.txt is {config:?}");
    let taken: PathBuf = file("kernel8.img");
    ensure!(copy(flash::KERNEL, &taken)? == kernel, "the kernel on the card differs");

    let arguments = board.arguments(board.configuration(BASE)?, &Overrides::default(), &taken)?;
    let session = "kprobes> run sha256 3 1\n...\n         3 calls of runtime::workload::sha256::iterate\n...\n";
    let mut player = Player::new(Session::parse(session).map_err(anyhow::Error::msg)?);
    converse(&arguments, seconds, &mut player).map_err(anyhow::Error::msg)
}

/// Returns the output of the program, if it ends well.
fn run(command: &mut Command) -> Result<String> {
    capture(command, |_| {}).output().map_err(anyhow::Error::msg)
}
