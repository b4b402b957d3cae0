"""Noisy gradient descent in phases, shared by DPSGD, Cond-DP and Switch-Cond-DP."""

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from conddp._validate import in_range, one_of, positive, positive_integer
from conddp.algorithms.algorithm import Algorithm
from conddp.algorithms.descent_errors import describe_errors
from conddp.algorithms.identity import ADDED_LATER
from conddp.algorithms.step_watch import StepWatch
from conddp.algorithms.task import Task
from conddp.algorithms.weighting import describe_weights, weigh_records
from conddp.data.parts import PublicFeatures
from conddp.data.records import Records
from conddp.data.scaling import scale_private
from conddp.data.schema import Schema
from conddp.data.stored_labels import ScaledLabels, open_labels
from conddp.features.conditioning import ConditioningMatrix
from conddp.features.row_weights import RowWeights
from conddp.features.spectrum import Spectrum
from conddp.features.stored_features import StoredFeatures
from conddp.heads.folding import move_parameters
from conddp.heads.head import Head, Inputs, OptimizerName
from conddp.losses import Loss
from conddp.models.diagnostics import Diagnostics
from conddp.models.result import FitResult
from conddp.privacy.accounting import GaussianEvent, calibrate_gaussian_mu, calibrate_noise_multiplier
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.events import make_run_event
from conddp.privacy.neighbouring import Neighbouring
from conddp.privacy.release import Curator
from conddp.privacy.transcript import Transcript
from conddp.training.backends import BACKENDS, load_backend
from conddp.training.loop import TrainingPlan, assist, train
from conddp.training.optimizers import Optimizer, make_optimizer
from conddp.training.ranks import Share, get_ranks
from conddp.training.stored_batches import StoredInputs

__all__ = ["Descent", "DescentPlan", "Phase"]

MOST_FORMED = 2000  # columns of a table in files up to which conditioned rows are formed block by block


@dataclass(frozen=True)
class Phase:
    """A number of steps on features conditioned by one matrix."""

    conditioning: ConditioningMatrix
    num_steps: int


@dataclass(frozen=True)
class DescentPlan:
    """All settings of a run, chosen from public information before private data are read."""

    phases: tuple[Phase, ...]
    training: TrainingPlan
    optimizer: OptimizerName
    learning_rate: float

    def __post_init__(self) -> None:
        run = sum(phase.num_steps for phase in self.phases)
        if run != self.training.num_steps:
            raise ValueError(f"phases have {run} steps in total, but {self.training.num_steps} are accounted for.")

    def part(self, number: int) -> TrainingPlan:
        """Return the training plan of one phase. Iterates are averaged in the last phase only."""
        phase, whole = self.phases[number], self.training
        tail = min(1.0, whole.averaging * whole.num_steps / phase.num_steps)
        return replace(whole, num_steps=phase.num_steps, averaging=tail if number == len(self.phases) - 1 else 0.0)


@dataclass(frozen=True, kw_only=True)
class Descent(Algorithm):
    """Settings of noisy gradient descent. Settings left at None are chosen by rules from public information.

    Labels are scaled to unit width by their declared bounds, and conditioned features have unit second moments.
    Settings are therefore comparable across data sets.

    Parameters
    ----------
    num_steps : int, optional
        Number of noisy steps.
    batch_size : int, optional
        Expected size of a Poisson sample: number of records, or of units if some have several records. None uses all
        records in every step, which is accounted exactly.
    optimizer : {"sgd", "adam"}, optional
        Optimizer.
    learning_rate : float, optional
        Learning rate of the optimizer.
    clip_norm : float, optional
        Maximum norm of the gradient of one record, for labels of unit width.
    averaging : float
        Fraction of the iterates, counted from the last, that are averaged into the model. 0 uses the last iterate;
        1 is the paper's Algorithm 1.
    backend : {"numpy", "torch"}
        Library that computes the steps. PyTorch is faster for wide networks and large batches, and must be installed.
        Sums are in float64 in both, and the guarantee is the same.
    """

    protects_units: ClassVar[bool] = True
    weighs_records: ClassVar[bool] = True
    divides_work: ClassVar[bool] = True
    conditions_start: ClassVar[bool] = False  # codes, which cannot be conditioned, are made up for by the start

    num_steps: int | None = None
    batch_size: int | None = None
    optimizer: OptimizerName | None = None
    learning_rate: float | None = None
    clip_norm: float | None = None
    averaging: float = 0.5
    backend: Literal["numpy", "torch"] = field(default="numpy", metadata=ADDED_LATER)

    def __post_init__(self) -> None:
        for name in ("num_steps", "batch_size"):
            if getattr(self, name) is not None:
                positive_integer(**{name: getattr(self, name)})
        for name in ("learning_rate", "clip_norm"):
            if getattr(self, name) is not None:
                positive(**{name: getattr(self, name)})
        if self.optimizer is not None:
            one_of(("sgd", "adam"), optimizer=self.optimizer)
        in_range(0.0, 1.0, averaging=self.averaging)
        one_of(BACKENDS, backend=self.backend)

    def expect(self, budget: PrivacyBudget) -> Transcript | None:
        """Return one Gaussian mechanism; the event of sampled steps depends on n and is not known yet."""
        return super().expect(budget) if self.batch_size is None else Transcript()

    def foresee(
        self, budget: PrivacyBudget, records: Records, *, head: Head, neighbouring: Neighbouring
    ) -> Transcript | None:
        """Return the event of the noisy steps."""
        num_sampled = records.num_records if records.units is None else records.units.num_units
        num_private = 0 if records.private is None else len(records.private.names)
        return make_run_event(
            self._calibrate(head, budget, num_sampled, num_private=num_private, neighbouring=neighbouring)
        )

    def _calibrate(
        self,
        head: Head,
        budget: PrivacyBudget,
        num_sampled: int,
        *,
        num_private: int,
        neighbouring: Neighbouring,
    ) -> GaussianEvent:
        """Noisy steps for a budget, with the given number of records or units to sample from."""
        optimizer = self.choose_optimizer(head, num_private=num_private)
        num_steps = self.num_steps or head.descent.steps[optimizer][0]
        probability = 1.0 if self.batch_size is None else min(1.0, self.batch_size / num_sampled)
        noise_multiplier = calibrate_noise_multiplier(
            budget.epsilon,
            budget.delta,
            num_steps=num_steps,
            sampling_probability=probability,
            neighbouring=neighbouring,
        )
        return GaussianEvent(noise_multiplier, num_steps, probability, neighbouring)

    def needs_dense(self, schema: Schema, head: Head) -> bool:
        """Return whether the head is not one of ours, which take rows that are never formed."""
        return not type(head).__module__.startswith("conddp.heads.")

    def reads_blocks(self, public_features: PublicFeatures, head: Head) -> bool:
        """Return whether rows of a block are formed and summed in float64 by NumPy, or divided over ranks."""
        if head.bins is not None:
            return False
        plain = self.backend == "numpy" and head.precision == "float64"
        return (plain and public_features.shape[1] <= MOST_FORMED) or get_ranks() is not None

    @abstractmethod
    def phases(self, spectrum: Spectrum, num_steps: int) -> tuple[Phase, ...]:
        """Return the phases: how the public features are conditioned, and for how many steps."""

    def code_phases(self, spectrum: Spectrum, num_steps: int) -> tuple[Phase, ...]:
        """Return the phases for a head that looks up codes, given the spectrum of the other columns."""
        return self.phases(spectrum, num_steps)

    def choose_optimizer(self, head: Head, *, num_private: int) -> OptimizerName:
        """Return the user's optimizer, or the default of this algorithm."""
        return self.optimizer or "adam"

    def switch_at(self, fraction: float) -> "Descent":
        """Return this algorithm with its phases switched after a fraction of the steps, if it has several phases."""
        return self

    def next_optimizer(self, used: Optimizer, fresh: Optimizer, *, same_shape: bool) -> Optimizer:
        """Return the optimizer for the next phase."""
        return fresh

    def plan(
        self,
        head: Head,
        spectrum: Spectrum,
        budget: PrivacyBudget,
        *,
        num_private: int = 0,
        neighbouring: Neighbouring = Neighbouring.REPLACE,
        weights: RowWeights | None = None,
    ) -> DescentPlan:
        """Choose all settings of the run from public information.

        Privacy
            Reads the spectrum of the public features, the units, n and the budget: no cost.
        """
        n, num_sampled = spectrum.num_records, spectrum.num_records
        if weights is not None:
            n, num_sampled = max(1, int(weights.noise_records)), weights.units.num_units
        optimizer = self.choose_optimizer(head, num_private=num_private)
        learning_rate = head.descent.steps[optimizer][1]
        run = self._calibrate(head, budget, num_sampled, num_private=num_private, neighbouring=neighbouring)
        clip_norm = self.clip_norm or _choose_clip_norm(head, spectrum.rank, num_private, n, budget, neighbouring)
        training = TrainingPlan(
            run.num_steps, clip_norm, run.noise_multiplier, run.sampling_probability, self.averaging
        )
        if head.num_codes:
            made = self.code_phases(spectrum, run.num_steps)
            phases = tuple(replace(each, conditioning=each.conditioning.keep_codes(head.num_codes)) for each in made)
        else:
            phases = self.phases(spectrum, run.num_steps)
        return DescentPlan(phases, training, optimizer, self.learning_rate or learning_rate)

    def run(self, task: Task) -> FitResult:
        """Train in phases.

        Privacy
            Releases ``num_steps`` noisy sums of clipped gradients, calibrated to the budget. The conditioning matrix
            and all settings depend only on public columns, n and the budget. With units or weights of the user, records
            have public weights, and the noise covers the unit with the largest sum of weights.
        """
        codes = task.head.num_codes
        spectrum = Spectrum.of(task.public.drop_codes(codes), constant=task.fit_intercept, weights=task.weights)
        weights = weigh_records(task, num_directions=task.head.layout(codes + spectrum.rank, task.num_private).size)
        plan = self.plan(
            task.head,
            spectrum,
            task.budget,
            num_private=task.num_private,
            neighbouring=task.neighbouring,
            weights=weights,
        )
        settings = {
            **asdict(plan.training),
            **describe_weights(weights),
            "optimizer": plan.optimizer,
            "learning_rate": plan.learning_rate,
            "head": repr(task.head),
            **({} if self.backend == "numpy" else {"backend": self.backend}),
        }
        load_backend(self.backend)  # raises if it is not installed, before anything is spent
        if task.ranks is not None and self.backend != "numpy":
            raise ValueError(f"on several ranks steps are computed with NumPy, got backend={self.backend!r}.")
        task.note_free("conditioning", "reads public columns and n only")
        training = plan.training
        steps = GaussianEvent(
            training.noise_multiplier, training.num_steps, training.sampling_probability, task.neighbouring
        )
        reason = "noisy sums of gradients clipped per record"
        records = task.spend(reason, settings, event=make_run_event(steps))
        watch = StepWatch(task.callback, plan.training.num_steps)
        model = task.make_model(self._descend(plan, task, records, watch, weights)[0])
        iterates = [
            move_parameters(task.head, kept, num_private=task.num_private, source=plan.phases[phase].conditioning)[0]
            for _, phase, kept in watch.kept
        ]
        distances = model.measure_distances(iterates, task.public)
        diagnostics = Diagnostics(tuple(step for step, _, _ in watch.kept), distances)
        uncertainty = None
        if len(plan.phases) == 1 and plan.optimizer == "sgd" and not watch.stopped:
            uncertainty = describe_errors(
                model.parameters,
                task,
                plan.training,
                spectrum,
                plan.phases[0].conditioning,
                learning_rate=plan.learning_rate,
                weights=weights,
            )
        return task.finish(model, settings, diagnostics=diagnostics, uncertainty=uncertainty)

    def _descend(
        self, plan: DescentPlan, task: Task, records: Records, watch: StepWatch, weights: RowWeights | None
    ) -> NDArray[np.float64]:
        """Train in phases; return parameters in terms of the original public features, shape (1, P)."""
        head, num_private, ranks = task.head, task.num_private, task.ranks
        rng, saved = task.make_generator("samples"), task.curator.load_state()
        if ranks is not None:
            ranks.tell((rng, weights))  # the others may now read their private columns
        share = None if ranks is None else Share(ranks, task.num_records)
        part = _Part.of(records, share, fit_intercept=task.fit_intercept)
        optimizer = make_optimizer(plan.optimizer, plan.learning_rate)
        current = plan.phases[0].conditioning
        layout = head.layout(current.num_parameters, num_private)
        parameters: NDArray[Any] = head.initialize_on(
            task.public, layout, task.make_generator("weights"), conditioned=self.conditions_start
        )[None]
        convert = load_backend(self.backend)
        for number, phase in enumerate(plan.phases):
            if watch.stopped:
                break
            watch.enter(number, sum(before.num_steps for before in plan.phases[:number]))
            if saved is not None and number < saved["phase"]:
                continue
            if saved is not None:
                watch.restore(saved)
                parameters = np.array(saved["parameters"])
            elif number > 0:
                parameters = move_parameters(
                    head, parameters, num_private=num_private, source=current, target=phase.conditioning
                )
                optimizer = self.next_optimizer(
                    optimizer,
                    make_optimizer(plan.optimizer, plan.learning_rate),
                    same_shape=current.num_parameters == phase.conditioning.num_parameters,
                )
            current = phase.conditioning
            elsewhere = 0.0
            if ranks is not None:
                ranks.steps_before = watch.before
                ranks.tell((plan.part(number), current))
            inputs = part.condition(current, plan.training, head, convert)
            if ranks is not None:
                elsewhere = sum(ranks.collect())
            trained = train(
                plan.part(number),
                head,
                head.layout(current.num_parameters, num_private),
                inputs,
                convert(part.label) if isinstance(part.label, np.ndarray) else part.label,
                convert(parameters),
                optimizer=optimizer,
                curator=task.curator,
                rng=rng,
                neighbouring=task.neighbouring,
                loss=task.loss,
                callback=watch,
                weights=weights,
                state=saved,
                save=None if task.curator.takes_steps else partial(_save_state, task.curator, watch),
                share=share,
                rounding_elsewhere=elsewhere,
            )
            parameters, saved = np.asarray(trained), None
            if ranks is not None:
                ranks.end_steps()
        if ranks is not None:
            ranks.tell(None)
        return move_parameters(head, parameters, num_private=num_private, source=current)

    def assist(self, share: Share, records: Records, *, head: Head, loss: Loss, fit_intercept: bool) -> None:
        """Compute sums of clipped gradients for rank 0, phase by phase.

        Privacy
            Reads private columns of the records of this rank, after rank 0 has recorded the cost. Nothing is released.
        """
        rng, weights = share.ranks.hear()  # rank 0 has recorded the cost
        part = _Part.of(records, share, fit_intercept=fit_intercept)
        while (phase := share.ranks.hear()) is not None:
            plan, conditioning = phase
            inputs = part.condition(conditioning, plan, head, load_backend("numpy"))
            layout = head.layout(conditioning.num_parameters, part.num_private)
            assist(plan, head, layout, inputs, part.label, share, rng=rng, loss=loss, weights=weights)


@dataclass(frozen=True)
class _Part:
    """Records that this process sums up, scaled: all of them, or those of a share."""

    public: PublicFeatures
    private: NDArray[np.float64] | None
    label: NDArray[np.float64] | ScaledLabels

    @property
    def num_private(self) -> int:
        return 0 if self.private is None else self.private.shape[1]

    @classmethod
    def of(cls, records: Records, share: Share | None, *, fit_intercept: bool) -> "_Part":
        public, private, label = records.public, records.private, records.label
        if share is not None:
            public, label = public[share.span], label[share.span]
            private = None if private is None else private[share.span]
        scaled = None if private is None else scale_private(private, center=fit_intercept)
        return cls(public, scaled, open_labels(label, center=fit_intercept))

    def condition(
        self, conditioning: ConditioningMatrix, plan: TrainingPlan, head: Head, convert: Callable[[Any], Any]
    ) -> Inputs | StoredInputs:
        if isinstance(self.public, StoredFeatures):
            return StoredInputs.of(self.public, conditioning)
        features = conditioning.apply(self.public)
        if head.precision != "float64" and isinstance(features, np.ndarray):
            features = features.astype(head.precision)
        if plan.sampling_probability == 1.0 and isinstance(features, np.ndarray):
            features = np.asfortranarray(features)  # full batches read whole columns, samples gather rows
        return head.prepare(convert(features), None if self.private is None else convert(self.private))


def _save_state(curator: Curator, watch: StepWatch, get_state: Callable[[], dict[str, Any]]) -> None:
    """Store the state of a run in the checkpoint, if there is one."""
    curator.save_state(lambda: {**get_state(), **watch.get_state()})


def _choose_clip_norm(
    head: Head, rank: int, num_private: int, n: int, budget: PrivacyBudget, neighbouring: Neighbouring
) -> float:
    r"""Choose a clip norm for labels of unit width and features of unit second moment.

    By default, a record of typical norm :math:`\sqrt{k}` is clipped at a residual of one fifth of the label range. The
    noise of one release of all P parameters, in units of that residual, is :math:`2 \sigma_1 \sqrt{P k} / n`. If it is
    large, the residual is lowered to as little as one twentieth: the bias from clipping is then smaller than the error
    that noise would cause. A head may specify the residual itself: networks, with their many parameters, always do best
    with the smallest. The constants were measured with ``benchmarks/defaults.py``.
    """
    num_inputs = head.num_codes + rank + num_private
    residual = head.descent.clip_residual
    if residual is None:
        noise_std = neighbouring.sensitivity(1.0) / calibrate_gaussian_mu(budget.epsilon, budget.delta)
        relative_noise = noise_std * math.sqrt(head.layout(head.num_codes + rank, num_private).size * num_inputs) / n
        residual = min(0.2, max(0.05, 0.01 / relative_noise))
    return residual * math.sqrt(num_inputs)
