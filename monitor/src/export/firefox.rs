//! The Firefox Profiler's format: misses over the time of the run.
//!
//! Source: the "processed profile format" of that project, as the crate `fxprof-processed-profile` writes it. Each process has a track for
//! each cache; a sample in it is an instruction's misses in what one window stands for, in the time from there to the next one, and its weight is their
//! number. Stacks are chains of inlined functions, from the object to the line.

use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::time::{Duration, UNIX_EPOCH};

use fxprof_processed_profile::{
    CategoryColor, CategoryHandle, CpuDelta, Frame, FrameFlags, FrameInfo, Profile,
    SamplingInterval, ThreadHandle, Timestamp, WeightType,
};

use super::flat::{self, HOMELESS, Levels};
use super::{ExportError, Exporter, Options};
use crate::analysis::{Analysis, Apart, Costs, Place};
use crate::profile;
use crate::symbols::short_module_name;

/// Weights have 31 bits: those of longer runs are in so many misses each.
const MOST_WEIGHT: f64 = 1e9;

pub(super) struct Firefox;

impl Exporter for Firefox {
    fn export(
        &self,
        analysis: &Analysis<'_>,
        options: &Options,
        out: &mut dyn Write,
    ) -> Result<(), ExportError> {
        let levels = Levels::new(analysis, options)?;
        let header = &analysis.profile.header;
        let command = header.command.join(" ");
        let begun = Duration::try_from_secs_f64(header.start_unix_s).unwrap_or_default();
        let windows = analysis.profile.windows.len().max(1);
        let wall = analysis.profile.footer.as_ref().map_or(0.0, |f| f.wall_s);
        let interval = Duration::try_from_secs_f64(wall / windows as f64).unwrap_or_default();
        let interval = interval.clamp(Duration::from_millis(1), Duration::from_secs(3600));
        let interval = SamplingInterval::from_nanos(interval.as_nanos() as u64);
        let mut profile = Profile::new(&command, (UNIX_EPOCH + begun).into(), interval);
        profile.set_product("statcache");
        profile.set_os_name("Linux");
        let mut document = Document {
            profile,
            categories: Categories::default(),
            begun_s: header.start_unix_s,
        };
        flat::each_process(analysis, options, |analysis| {
            document.add(analysis, &levels)
        })?;
        // Names are all told: it need not ask for any.
        document.profile.set_symbolicated(true);
        serde_json::to_writer(out, &document.profile).map_err(std::io::Error::from)?;
        Ok(())
    }
}

/// Colours of objects, in the order they come.
#[derive(Default)]
struct Categories(HashMap<String, CategoryHandle>);

impl Categories {
    const COLORS: [CategoryColor; 6] = [
        CategoryColor::Blue,
        CategoryColor::Green,
        CategoryColor::Orange,
        CategoryColor::Purple,
        CategoryColor::Yellow,
        CategoryColor::Brown,
    ];

    fn of(&mut self, profile: &mut Profile, object: &str) -> CategoryHandle {
        let next = Self::COLORS[self.0.len() % Self::COLORS.len()];
        let category = self.0.entry(object.to_owned());
        *category.or_insert_with(|| profile.add_category(object, next))
    }
}

/// The document in the making.
struct Document {
    profile: Profile,
    categories: Categories,
    begun_s: f64,
}

impl Document {
    fn add(&mut self, analysis: &Analysis<'_>, levels: &Levels) -> Result<(), ExportError> {
        let header = &analysis.profile.header;
        // Of the first process.
        let begun_s = header.start_unix_s - self.begun_s;
        let name = header.program();
        let pid = header.pid.unsigned_abs();
        let process = self.profile.add_process(name, pid, time(begun_s));
        let ended_s = analysis.profile.footer.as_ref().map(|footer| footer.wall_s);
        let costs = analysis.costs(&levels.sizes, Apart::Windows)?;
        for (at, label) in levels.labels(header).iter().enumerate() {
            // None is the main one: that would be called by the process's name.
            let thread = self
                .profile
                .add_thread(process, pid + at as u32, time(begun_s), false);
            if let Some(ended_s) = ended_s {
                self.profile
                    .set_thread_end_time(thread, time(begun_s + ended_s));
            }
            let largest = costs.places.iter().map(|p| p.misses[at]);
            let largest = largest.fold(0.0, f64::max);
            let scale = 10f64.powf((largest / MOST_WEIGHT).log10().ceil().max(0.0));
            let unit = match scale > 1.0 {
                true => format!(" in units of {scale:.0}"),
                false => String::new(),
            };
            self.profile
                .set_thread_name(thread, &format!("misses in {label}{unit}"));
            self.profile
                .set_thread_samples_weight_type(thread, WeightType::Samples);
            self.profile.add_initial_visible_thread(thread);
            if at == levels.first {
                self.profile.add_initial_selected_thread(thread);
            }
            let track = Track {
                thread,
                at,
                scale,
                begun_s,
            };
            self.fill(analysis, &costs, &track);
        }
        Ok(())
    }

    /// Samples of a window lie evenly in the time until the next one. As much of that as they have of the misses a second, of what the window with the
    /// most has, is told as time of a processor, of which the viewer draws its graphs.
    fn fill(&mut self, analysis: &Analysis<'_>, costs: &Costs, track: &Track) {
        let profile = analysis.profile;
        let weight = |misses: f64| flat::count(misses / track.scale) as i32;
        let mut by_window: BTreeMap<u32, Vec<(&Place, i32)>> = BTreeMap::new();
        for place in &costs.places {
            match weight(place.misses[track.at]) {
                0 => {}
                weight => by_window
                    .entry(place.part)
                    .or_default()
                    .push((place, weight)),
            }
        }
        let spans = spans(profile);
        let per_second = |window: u32, of: &[(&Place, i32)]| {
            let misses: f64 = of.iter().map(|(_, weight)| f64::from(*weight)).sum();
            misses / spans[window as usize].1
        };
        let most = by_window.iter().map(|(&w, of)| per_second(w, of));
        let most = most.fold(f64::MIN_POSITIVE, f64::max);
        for (&window, of) in &by_window {
            let (start_s, long_s) = spans[window as usize];
            let step_s = long_s / of.len() as f64;
            let busy = (per_second(window, of) / most).clamp(0.0, 1.0);
            let cpu = CpuDelta::from_nanos((step_s * busy * 1e9) as u64);
            for (nth, (place, weight)) in of.iter().enumerate() {
                let at_s = track.begun_s + start_s + step_s * (nth + 1) as f64;
                let object = flat::object(profile, place.instr).map(short_module_name);
                let object = object.unwrap_or("[generated code]");
                let frames = flat::frames(profile, place.instr);
                let mut labels = vec![object.to_owned()];
                labels.extend(frames.iter().rev().map(|frame| frame.function.clone()));
                labels.extend(flat::place(&frames[0]));
                self.sample((track.thread, at_s, cpu), object, &labels, *weight);
            }
        }
        let homeless = weight(costs.homeless().1[track.at]);
        if homeless > 0 {
            let labels = [HOMELESS.to_owned()];
            let at = (track.thread, track.begun_s, CpuDelta::ZERO);
            self.sample(at, HOMELESS, &labels, homeless);
        }
    }

    fn sample(
        &mut self,
        (thread, at_s, cpu): (ThreadHandle, f64, CpuDelta),
        object: &str,
        labels: &[String],
        weight: i32,
    ) {
        let category = self.categories.of(&mut self.profile, object);
        let frames: Vec<FrameInfo> = labels
            .iter()
            .map(|label| FrameInfo {
                frame: Frame::Label(self.profile.intern_string(label)),
                category_pair: category.into(),
                flags: FrameFlags::empty(),
            })
            .collect();
        let stack = self.profile.intern_stack_frames(thread, frames.into_iter());
        self.profile
            .add_sample(thread, time(at_s), stack, cpu, weight);
    }
}

/// The misses in one cache.
struct Track {
    thread: ThreadHandle,
    /// Which of the caches.
    at: usize,
    /// Misses of a weight of one.
    scale: f64,
    /// Seconds from the start of the run to the process's.
    begun_s: f64,
}

/// Start of each window, and the time from there to the next later one or to the end: seconds.
fn spans(profile: &profile::Profile) -> Vec<(f64, f64)> {
    /// Of what lies closer together no rate is told, nor of the last one where a profile has no end.
    const LEAST_S: f64 = 1e-3;
    let mut starts: Vec<f64> = profile.windows.iter().map(|w| w.start_s).collect();
    starts.sort_by(f64::total_cmp);
    let end_s = profile.footer.as_ref().map_or(0.0, |footer| footer.wall_s);
    let span = |start_s: f64| {
        let later = starts.partition_point(|&other| other <= start_s);
        let next_s = starts.get(later).copied().unwrap_or(end_s);
        (start_s, (next_s - start_s).max(LEAST_S))
    };
    let windows = profile.windows.iter();
    windows.map(|window| span(window.start_s)).collect()
}

fn time(seconds: f64) -> Timestamp {
    Timestamp::from_millis_since_reference(seconds.max(0.0) * 1000.0)
}
