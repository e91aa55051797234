//! Observations in; changes, snapshots and accounts out.
//!
//! Its whole state is data: written as the checkpoint of a recording and read back, it goes on exactly where it was.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::detect::engine::Engine;
use crate::detect::settings::Settings;
use crate::detect::{Change, words};
use crate::model::Model;
use crate::model::accounts::{Account, PauseTotal, ShareTotal};
use crate::model::mechanism::Mechanism;
use crate::model::observation::Observation;
use crate::model::snapshot::Snapshot;

/// Model and detectors with their settings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Pipeline {
    settings: Settings,
    model: Model,
    engine: Engine,
}

impl Pipeline {
    /// Nothing seen yet.
    pub fn new(settings: Settings) -> Pipeline {
        Pipeline {
            settings,
            ..Pipeline::default()
        }
    }

    /// Takes in one observation and judges that tick.
    pub fn feed(&mut self, observation: &Observation) -> Vec<Change> {
        let before = self.model.now_ns();
        self.model.apply(observation);
        let changes = self.engine.step(&self.model, &self.settings);
        let now = self.model.now_ns();
        // The first tick says nothing about the time before it.
        let tick_ns = if before == 0 { 0 } else { now - before };
        for (edge, ns) in self.engine.edges(now, tick_ns) {
            self.model.blame_mut().add(now, edge, ns);
        }
        changes
    }

    /// The state of the machine at the last tick.
    pub fn snapshot(&self) -> Snapshot {
        let verdict = words::verdict(&self.model, &self.engine);
        self.model.snapshot(self.engine.findings(), verdict)
    }

    /// The observer goes away: closes what is open, with reason `detached`.
    pub fn detach(&mut self) -> Vec<Change> {
        self.engine.detach(&self.model)
    }

    /// What became of the requests, by disk and class.
    pub fn accounts(&self) -> Vec<Account> {
        self.model.accounts()
    }

    /// Pauses for dirty memory since attach, by backing device and worker.
    pub fn pauses(&self) -> Vec<PauseTotal> {
        self.model.pause_totals()
    }

    /// Who used which part of a disk since attach.
    pub fn shares(&self) -> Vec<ShareTotal> {
        self.model.share_totals()
    }

    /// Everything that is known at the last tick.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Delay by mechanism since attach, in ns.
    pub fn blame_totals(&self) -> &BTreeMap<Mechanism, u64> {
        self.model.blame().by_mechanism()
    }

    /// Judges by other thresholds from the next tick on.
    pub fn set_settings(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// The thresholds in use.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }
}
