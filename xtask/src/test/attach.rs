//! Tests machines that run already: a QEMU that goes on without the command that started it, one that a debugger talks
//! to, and one at the end of a line that is pulled, or whose user presses every key. Signals end commands. The commands
//! of the README that make its pictures are run, too.
//! To make these pictures anew: `PICTURES=1 cargo xtask test attach::pictures`.

mod ended;
mod keys;
mod terminal;

use std::{
    env,
    ffi::OsString,
    fs::{self, File},
    io::{self, BufRead, BufReader, Lines, Read, Write},
    net::{Ipv4Addr, TcpStream},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail, ensure};

use super::{
    loader::cable::{Cable, Faults},
    pool::BuildContext,
    report::Outcome,
    select::Demands,
    target::{Candidate, Targets},
};
use crate::{
    board,
    boot::Target,
    detached::{DetachedMachine, Files},
    machine::{Output, Start},
    record::{Ending, RecordOptions, Recorded, Settings},
    remote::Remote,
    serial::{self, Connection},
    setup,
    top::picture,
    trace::source::Source,
    workspace,
};

type Test = fn(&Fixture) -> Result<Outcome>;

/// The tests in which the machine is busy most of the time.
const BUSY: [(&str, Test); 3] =
    [("attach::detached", detached), ("attach::pictures", pictures), ("attach::programs", programs)];
/// The tests in which a machine and a command wait for each other, or for a dead line.
const PATIENT: [(&str, Test); 5] = [
    ("attach::ended", ended::ended),
    ("attach::gdb", gdb),
    ("attach::keys", keys::keys),
    ("attach::line", line),
    ("attach::terminal", terminal::terminal),
];

/// How long to wait before looking again.
const TURN: Duration = Duration::from_millis(5);
/// An event that a workload causes twice in each iteration.
const EVENT: &str = "p:blocks sha2::sha256::compress256 count=%x2:u64";
/// How often the event comes, and the workload that causes it.
const EVENTS: (usize, &str) = (200, "run sha256 100");
/// For how many seconds a machine whose line is pulled counts as alive. On a busy host, a machine that runs may be
/// silent for ten.
const PATIENCE: &str = "30";
/// A command that takes a while, and the end of its output.
const LEFT: (&str, &str) = ("run sha256 100000 1", "calls of sha2::sha256::compress256\r\nkprobes> ");
/// A workload that does not end by itself.
const WORKLOAD: &str = "run sha256 100000000";

/// The machine of a test, and what else the test uses.
struct Fixture {
    arguments: Vec<OsString>,
    /// The options of commands for this configuration.
    options: [String; 4],
    image: PathBuf,
    directory: PathBuf,
    /// How long it may take from one output to the next.
    seconds: u64,
}

/// Adds the tests.
pub fn add<'a>(context: &BuildContext<'_, 'a>, targets: &'a Targets<'a>, kernel: &Path) {
    targets.add_each(context, "attach::machine", |index, named| {
        if !named.board.has_virtio_serial() {
            return Ok(Vec::new());
        }
        let fixture = Arc::new(Fixture {
            arguments: named.arguments(kernel)?,
            options: named.options(),
            image: kernel.into(),
            directory: workspace::root().join("target/attach").join(format!("{index}")),
            seconds: targets.seconds,
        });
        // The README has the pictures of one configuration.
        let has_pictures = named.is_base() && named.board.name == board::DEFAULT;
        let busy = BUSY.into_iter().filter(|(name, _)| *name != "attach::pictures" || has_pictures);
        let candidate = |(name, test): (_, Test)| {
            let fixture = Arc::clone(&fixture);
            Candidate::try_new(index, name, Demands::default(), move || test(&fixture))
        };
        let patient = PATIENT.into_iter().map(|test| candidate(test).patient());
        Ok(busy.map(candidate).chain(patient).collect())
    });
}

impl Fixture {
    fn deadline(&self) -> Instant {
        Instant::now() + Duration::from_secs(self.seconds)
    }

    /// Starts the machine at the end of a cable, and waits for its prompt.
    fn cable(&self, name: &str) -> Result<Cable> {
        let cable = Cable::new(&self.arguments, Faults::default(), &self.directory(name)?, "port")?;
        let deadline = self.deadline();
        // Keys that are typed before the kernel reads them are lost.
        let reach = || {
            let target = Target::Connected { connection: open(&cable.port)?, kernel: None };
            Remote::start(&target, self.seconds)?.leave(target.farewell());
            anyhow::Ok(())
        };
        while let Err(error) = reach() {
            ensure!(Instant::now() < deadline, "{error:#}");
        }
        Ok(cable)
    }

    /// Makes the directory for the files of a test.
    fn directory(&self, name: &str) -> Result<PathBuf> {
        let directory = self.directory.join(name);
        fs::create_dir_all(&directory).with_context(|| format!("{} cannot be made", directory.display()))?;
        Ok(directory)
    }
}

/// This command, with these arguments.
fn own(arguments: &[&str]) -> Result<Command> {
    let mut command = Command::new(env::current_exe()?);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // SAFETY: the closure runs in the child between fork and exec, where only async-signal-safe functions may be
    // called. signal is one, and the default runs no code of the process.
    unsafe {
        // `nohup` leaves the signal ignored to all that it runs.
        command.pre_exec(|| match libc::signal(libc::SIGHUP, libc::SIG_DFL) {
            libc::SIG_ERR => Err(io::Error::last_os_error()),
            _ => Ok(()),
        });
    }
    Ok(command)
}

/// A process that ends with its test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail if it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A detached machine that ends with its test.
struct Ended<'a>(&'a Files);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.kill();
    }
}

/// A machine goes on between commands, which leave it as it was, also if they end early. One command uses it at a time.
fn detached(fixture: &Fixture) -> Result<Outcome> {
    let files = Files::of(fixture.directory("qemu")?);
    let end = Ended(&files);
    // A test that was interrupted has left its machine.
    let deadline = fixture.deadline();
    while DetachedMachine::find_in(files.clone())?.is_some() {
        ensure!(Instant::now() < deadline, "the machine of a test before does not end");
        files.kill();
        thread::sleep(TURN);
    }
    files.start(&fixture.arguments, &fixture.image, true, Some(fixture.seconds))?;
    let find =
        || anyhow::Ok(Target::Detached(DetachedMachine::find_in(files.clone())?.context("the machine has ended")?));
    let refused = |result: Result<()>, why: &str| match result {
        Err(error) if format!("{error:#}").contains(why) => Ok(()),
        result => bail!("not refused because {why}: {result:?}"),
    };
    let second = files.start(&fixture.arguments, &fixture.image, true, Some(fixture.seconds));
    refused(second.map(drop), "a detached machine runs already")?;
    {
        let target = find()?;
        refused(find().map(drop), "another command uses the detached machine")?;
        let mut remote = Remote::start(&target, fixture.seconds)?;
        // It is left in the middle of a program.
        remote.type_line("trace 'kprobe:sha2::* { @ = count(); }'")?;
    }
    // Output that comes while no command reads it is in the log, and is counted.
    let read = Arc::new(Mutex::new(Vec::new()));
    {
        let found = DetachedMachine::find_in(files.clone())?.context("the machine has ended")?;
        let reader = Arc::clone(&read);
        let console = found.start(Box::new(move |output| {
            if let Output::Bytes(bytes) = output {
                reader.lock().unwrap_or_else(PoisonError::into_inner).extend(bytes);
            }
        }))?;
        console.type_line(LEFT.0);
        while read.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
            ensure!(Instant::now() < deadline, "`{}` is not echoed", LEFT.0);
            thread::sleep(TURN);
        }
    }
    let log = fixture.directory("qemu")?.join("log");
    while !String::from_utf8_lossy(&fs::read(&log)?).contains(LEFT.1) {
        ensure!(Instant::now() < deadline, "`{}` does not end without a reader", LEFT.0);
        thread::sleep(TURN);
    }
    let missed = DetachedMachine::find_in(files.clone())?.context("the machine has ended")?.missed;
    let printed = fs::read(&log)?;
    let (before, unread) = printed.split_at(printed.len().saturating_sub(missed as usize));
    let read = read.lock().unwrap_or_else(PoisonError::into_inner);
    ensure!(String::from_utf8_lossy(unread).contains(LEFT.1), "{missed} bytes are missed of {printed:?}");
    ensure!(!read.is_empty() && before.ends_with(&read), "{read:?} was read, and {missed} bytes are missed");
    drop(read);
    {
        let target = find()?;
        let mut remote = Remote::start(&target, fixture.seconds)?;
        // The rings have sizes of their own, if there are several CPUs.
        ensure!(remote.does("echo 64 > per_cpu/cpu0/buffer_size_kb")?, "the size of a ring cannot be set");
        remote.leave(target.farewell());
    }
    for _ in 0..2 {
        let target = find()?;
        let mut remote = Remote::start(&target, fixture.seconds)?;
        no_probe_is_left(&mut remote)?;
        let size = remote.ask("cat per_cpu/cpu0/buffer_size_kb")?;
        ensure!(size == ["64"], "the ring of a CPU has {size:?} KiB");
        let settings = Settings::of(&mut remote)?;
        let mut recorded = Recorded::of(fs::read(target.image()?)?);
        let Target::Detached(found) = &target else { bail!("another machine was found") };
        let long = Source::new(&"BEGIN { @ = 1; } ".repeat(300), None, &[]).map_err(|sentence| anyhow!(sentence))?;
        let channel = found.frames();
        let mistaken =
            Recorded::default().take(&mut remote, channel.as_deref(), &RecordOptions::default(), Some(&long));
        refused(mistaken.map(drop), "and the console takes 4094")?;
        let options = RecordOptions {
            event: vec![EVENT.into()],
            command: Some(EVENTS.1.into()),
            buffer: Some(1024),
            ..RecordOptions::default()
        };
        let outcome = recorded.take(&mut remote, channel.as_deref(), &options, None)?;
        let events = recorded.flags().count();
        ensure!(outcome == Ending::Done && recorded.missing + recorded.damaged == 0, "{outcome:?}: {recorded}");
        ensure!(events == EVENTS.0 && recorded.records == events as u64, "{recorded}");
        settings.restore(&mut remote)?;
        remote.leave(target.farewell());
    }
    let target = find()?;
    Remote::start(&target, fixture.seconds)?.leave(Some("poweroff"));
    drop(target);
    ensure!(DetachedMachine::find_in(files.clone())?.is_none(), "the machine goes on after `poweroff`");
    drop(end);
    Ok(Outcome::Passed)
}

/// `run --gdb` prints where a debugger finds a machine, and arguments after `--` reach QEMU: `-S` stops the machine
/// before its first instruction, until the debugger leaves.
fn gdb(fixture: &Fixture) -> Result<Outcome> {
    let mut command = own(&["run", "--no-network", "--gdb", "--script", "-"])?;
    command
        .args(&fixture.options)
        .arg("--image")
        .arg(&fixture.image)
        .args(["--", "-S"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null());
    let mut run = Process(command.spawn()?);
    let notes = run.0.stderr.take().context("there is no standard error")?;
    let mut lines = BufReader::new(notes).lines().map_while(Result::ok);
    let port = lines.find_map(|line| line.split_once("target remote :")?.1.strip_suffix('\'')?.parse::<u16>().ok());
    let port = port.context("the command does not say how to connect")?;
    let deadline = fixture.deadline();
    // A connection that comes before QEMU is ready is refused or reset.
    let mut stub = loop {
        let stub = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map_err(Into::into);
        let asked = stub.and_then(|mut stub| {
            stub.set_read_timeout(Some(Duration::from_secs(fixture.seconds)))?;
            let stopped = ask(&mut stub, "?")?;
            ensure!(stopped.starts_with("T05") || stopped.starts_with("S05"), "the stub says {stopped:?}");
            Ok(stub)
        });
        match asked {
            Ok(stub) => break stub,
            Err(error) if Instant::now() > deadline => return Err(error.context("there is no stub")),
            Err(_) => thread::sleep(TURN),
        }
    };
    // The number of the pc is 32, and the machine begins at the first byte of its memory.
    let pc = ask(&mut stub, "p20")?;
    ensure!(pc == "0000004000000000", "the pc is {pc}, in the order of memory");
    ensure!(ask(&mut stub, "D")? == "OK", "the stub does not let go");
    drop(run.0.stdin.take());
    // Reads its other notes.
    lines.for_each(drop);
    let status = run.0.wait()?;
    ensure!(status.success(), "{status}");
    Ok(Outcome::Passed)
}

/// Sends a packet to a stub, and returns its reply.
fn ask(stub: &mut TcpStream, packet: &str) -> Result<String> {
    let sum = packet.bytes().fold(0_u8, u8::wrapping_add);
    write!(stub, "+${packet}#{sum:02x}")?;
    let (mut reply, mut byte) = (String::new(), [0]);
    // The reply is `+$TEXT#` and two digits.
    while !reply.ends_with('#') {
        stub.read_exact(&mut byte)?;
        reply.push(byte[0].into());
    }
    stub.read_exact(&mut [0; 2])?;
    Ok(reply.trim_matches(['+', '$', '#']).into())
}

/// A program that prints `turn` again and again.
const PROGRAM: &str = "BEGIN { printf(\"begun\\n\"); } interval:ms:100 { printf(\"turn\\n\"); }";

/// A command that uses the machine at the end of a cable.
struct Running {
    child: Process,
    output: Lines<BufReader<ChildStdout>>,
}

impl Running {
    /// Starts the command `name` with these arguments, which run [`PROGRAM`], and waits until it runs. The machine may
    /// be silent for `patience` seconds.
    fn start(fixture: &Fixture, cable: &Cable, patience: &str, name: &str, arguments: &[&str]) -> Result<Self> {
        let before = cable.sent();
        let port = cable.port.to_string_lossy().into_owned();
        let mut command = own(&[name, "--serial", &port, "--timeout", patience])?;
        if name != "attach" {
            command.args(["--attach", "-c", WORKLOAD]);
        }
        let mut child = Process(command.args(arguments).spawn()?);
        let mut output = BufReader::new(child.0.stdout.take().context("there is no standard output")?).lines();
        if name == "top" {
            // It prints nothing. Its program is longer than this.
            let deadline = fixture.deadline();
            while cable.sent() < before + 500 && child.0.try_wait()?.is_none() {
                ensure!(Instant::now() < deadline, "{name} types no program");
                thread::sleep(TURN);
            }
        } else {
            let turns = output.by_ref().map_while(Result::ok).filter(|line| line == "turn").take(5);
            ensure!(turns.count() == 5, "{name} ends early");
        }
        Ok(Self { child, output })
    }

    /// Waits for its end, and ends it if it goes on for longer than tests of the machine may take. Returns its status
    /// and its notes.
    fn end(mut self, fixture: &Fixture) -> Result<(ExitStatus, String)> {
        let (is_over, waits) = mpsc::channel::<()>();
        let (id, limit) = (self.child.0.id().to_string(), Duration::from_secs(fixture.seconds));
        let guard = thread::spawn(move || {
            if waits.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                let _ = Command::new("kill").args(["-KILL", &id]).status();
            }
        });
        // The command would end if its output had no reader.
        self.output.by_ref().for_each(drop);
        let mut notes = String::new();
        self.child.0.stderr.take().context("there is no standard error")?.read_to_string(&mut notes)?;
        drop(is_over);
        let _ = guard.join();
        Ok((self.child.0.wait()?, notes))
    }
}

/// Each command ends with a sentence when its line is pulled for good, and a recording can be read until then.
fn line(fixture: &Fixture) -> Result<Outcome> {
    let directory = fixture.directory("line")?;
    let path = |name: &str| directory.join(name).to_string_lossy().into_owned();
    let [file, screen, script] = ["trace.dat", "top.svg", "script"].map(path);
    let _ = fs::remove_file(&file);
    fs::write(&script, format!("trace '{PROGRAM}' -c '{WORKLOAD}'\n"))?;
    let image = fixture.image.to_string_lossy();
    let watched = ["--svg", &screen, "--seconds", "1000", "sha2::*"];
    let recorded = ["-o", &file, "--image", &image, "-e", EVENT, "-p", PROGRAM];
    // The last line of a script says where it was.
    let commands: [(&str, &[&str], i32); 4] = [
        ("top", &watched, 4),
        ("trace", &[PROGRAM], 4),
        ("record", &recorded, 4),
        ("attach", &["--script", &script], 1),
    ];
    for (name, arguments, status) in commands {
        let cable = fixture.cable("line")?;
        let running = Running::start(fixture, &cable, PATIENCE, name, arguments)?;
        drop(cable);
        let (ended, notes) = running.end(fixture)?;
        let is_told = notes.contains(&format!("xtask: the machine gave no sign of life for {PATIENCE} s"));
        ensure!(ended.code() == Some(status) && is_told, "{name}: {ended}: {notes}");
        if name == "record" {
            ensure!(notes.contains("the end of the recording is missing"), "{notes}");
        }
    }
    ensure!(fs::read(&file)?.starts_with(b"\x17\x08\x44tracing"), "the recording has no head");
    if setup::tool("trace-cmd").is_ok() {
        let report = Command::new("trace-cmd").args(["report", &file]).stdin(Stdio::null()).output()?;
        let events = String::from_utf8_lossy(&report.stdout).lines().filter(|line| line.contains(" blocks:")).count();
        ensure!(report.status.success() && events > 0, "trace-cmd reads {events} events: {}", report.status);
    }
    Ok(Outcome::Passed)
}

/// Checks that nothing is probed any more.
pub fn no_probe_is_left(remote: &mut Remote) -> Result<()> {
    let left = remote.ask("list")?;
    ensure!(left.iter().any(|line| line.starts_with("memory: 0 instructions, 0 slots and 0 stubs")), "{left:?}");
    Ok(())
}

/// Opens the port of a machine that runs already.
fn open(port: &Path) -> Result<Connection> {
    let options = serial::Options { serial: Some(port.into()), baud: 115_200 };
    Connection::open(&options)?.context("there is no port")
}

/// A program on the standard input runs while events are recorded. A refused one leaves no file.
fn programs(fixture: &Fixture) -> Result<Outcome> {
    let directory = fixture.directory("programs")?;
    let [file, source] = ["trace.dat", "program.bt"].map(|name| directory.join(name));
    let record = |program: &str, notes: Stdio| -> Result<_> {
        let _ = fs::remove_file(&file);
        fs::write(&source, program)?;
        let mut command = own(&["record", "--no-network", "-e", EVENT, "-c", EVENTS.1, "-p", "-"])?;
        command.args(&fixture.options).arg("--image").arg(&fixture.image).arg("-o").arg(&file);
        Ok(command.stdin(File::open(&source)?).stderr(notes).output()?)
    };
    let counted = "kprobe:sha2::* { @blocks = count(); }";
    let done = record(counted, Stdio::piped())?;
    let [output, notes] = [&done.stdout, &done.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    ensure!(done.status.success() && output.trim() == format!("@blocks: {}", EVENTS.0), "{output}{notes}");
    ensure!(notes.contains(&format!("trace.dat: {} events", EVENTS.0)) && file.is_file(), "{notes}");
    // The standard error is gone, as with a closed terminal.
    let (reader, notes) = io::pipe()?;
    drop(reader);
    let done = record(counted, notes.into())?;
    ensure!(done.status.success() && file.is_file(), "without a standard error: {}", done.status);
    let refused = record("kprobe:nowhere { @ = count(); }", Stdio::piped())?;
    let notes = String::from_utf8_lossy(&refused.stderr).into_owned();
    ensure!(refused.status.code() == Some(3) && notes.contains("error: no function matches this"), "{notes}");
    ensure!(!file.exists(), "a refused program has left a file");
    Ok(Outcome::Passed)
}

/// The largest picture in bytes.
const PICTURE_MAX: u64 = 150 << 10;

/// The commands below the pictures of the README make them: the same functions, in the same layout.
fn pictures(fixture: &Fixture) -> Result<Outcome> {
    let root = workspace::root();
    let readme = fs::read_to_string(root.join("README.md"))?;
    let directory = fixture.directory("pictures")?;
    fs::create_dir_all(directory.join("docs/pictures"))?;
    let own = format!("'{}'", env::current_exe()?.display());
    let options = format!("--no-network --image '{}' ", fixture.image.display());
    for (name, contents) in [("flamegraph", frames as fn(&str) -> Vec<String>), ("top", rows)] {
        let picture = format!("docs/pictures/{name}.svg");
        let (_, rest) = readme.split_once(&format!("]({picture})")).context("the README lacks a picture")?;
        let commands = rest.split("```").nth(1).context("no command is below a picture")?.trim();
        let mut script = commands.replace("cargo xtask flamegraph ", &format!("{own} flamegraph "));
        for command in ["trace ", "top "] {
            script = script.replace(&format!("cargo xtask {command}"), &format!("{own} {command}{options}"));
        }
        let mut shell = Command::new("sh");
        shell.args(["-e", "-c", &script]).current_dir(&directory).env("CARGO_MANIFEST_DIR", root.join("xtask"));
        let done = shell.stdin(Stdio::null()).output()?;
        ensure!(done.status.success(), "{script}: {}", String::from_utf8_lossy(&done.stderr));
        let (drawn, kept) = (directory.join(&picture), root.join(&picture));
        if env::var_os("PICTURES").is_some() {
            fs::copy(&drawn, &kept)?;
        }
        let size = fs::metadata(&drawn)?.len();
        ensure!(size <= PICTURE_MAX, "{picture} has {size} bytes");
        let [drawn, kept] = [drawn, kept].map(|path| fs::read_to_string(path).map(|svg| contents(&svg)));
        let (drawn, kept) = (drawn?, kept?);
        ensure!(!drawn.is_empty() && drawn == kept, "{picture} has {kept:?}, and its command draws {drawn:?}");
    }
    Ok(Outcome::Passed)
}

/// Returns the workload's functions of a flame graph that have at least half of the samples. The samples are taken by
/// time, so the shares of the others vary.
fn frames(svg: &str) -> Vec<String> {
    let titles = svg.split("<title>").skip(1).filter_map(|title| title.split_once("</title>"));
    let mut names: Vec<String> = titles
        .filter_map(|(title, _)| {
            let (name, numbers) = title.rsplit_once(" (")?;
            let part: f64 = numbers.split(", ").nth(1)?.strip_suffix("%)")?.parse().ok()?;
            (part >= 50.0 && name.contains("deflate")).then(|| name.into())
        })
        .collect();
    names.sort();
    names.dedup();
    names
}

/// Returns the tabs and the header of a live view, and the functions in the order of their names.
fn rows(svg: &str) -> Vec<String> {
    /// The width of the numbers and the history in front of a name.
    const NUMBERS: usize = 50;
    let mut lines = picture::rows(svg);
    lines.pop();
    let mut functions: Vec<String> = lines.drain(3.min(lines.len())..).collect();
    functions.iter_mut().for_each(|row| *row = row.chars().skip(NUMBERS).collect());
    functions.sort();
    lines.into_iter().skip(1).chain(functions).collect()
}
