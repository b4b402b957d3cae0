"""Steps of JAX-Privacy, in float32: the compiled step in a Python loop, or a hundred compiled steps at once.

Poisson samples are padded to a multiple of 64 records, as JAX-Privacy recommends, so that few shapes are compiled.
"""

import os
import time
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import jax_privacy
import numpy as np
import optax
from jax_privacy import batch_selection, noise_addition

from ..workers import serve

AT_ONCE, MULTIPLE = 100, 64


class Steps:
    """State of the descent."""

    def set_up(self, *, path: str, widths: list[int], settings: dict[str, Any], at_once: bool) -> str:
        """Read records and compile; return the version."""
        stored = np.load(path)
        self.X, self.y, self.at_once = jnp.asarray(stored["X"]), jnp.asarray(stored["y"]), at_once
        self.batch_size, n = settings["batch_size"], len(stored["y"])
        layers, start = [], 0
        for number, (below, width) in enumerate(zip(widths, [*widths[1:], 1], strict=True)):
            weight = stored["parameters"][start : start + width * below].reshape(width, below)
            start += width * below
            bias = stored["parameters"][start : start + width] if number else np.zeros(0)
            start += len(bias)
            layers.append((jnp.asarray(weight, jnp.float32), jnp.asarray(bias, jnp.float32)))
        self.parameters = layers

        def loss(parameters: Any, x: Any, target: Any) -> Any:
            for number, (weight, bias) in enumerate(parameters):
                x = x @ weight.T + (bias if number else 0.0)
                if number + 1 < len(parameters):
                    x = jax.nn.relu(x)
            return 0.5 * jnp.mean((x.ravel() - target) ** 2)

        clip = settings["clip_norm"]
        gradient = jax_privacy.clipped_grad(
            loss, l2_clip_norm=clip, batch_argnums=(1, 2), normalize_by=float(self.batch_size or n)
        )
        noise = settings["noise_multiplier"] * clip / (self.batch_size or n)
        privatizer = noise_addition.gaussian_privatizer(stddev=noise, prng_key=jax.random.key(0))
        rule = {"adam": optax.adam, "sgd": optax.sgd}[settings["rule"]](settings["learning_rate"])

        def step(state: Any, x: Any, target: Any, padding: Any) -> Any:
            parameters, noise_state, rule_state = state
            found = gradient(parameters, x, target, is_padding_example=padding)
            found, noise_state = privatizer.update(found, noise_state)
            updates, rule_state = rule.update(found, rule_state, parameters)
            return optax.apply_updates(parameters, updates), noise_state, rule_state

        def gathered(state: Any, indices: Any) -> Any:
            return step(state, self.X[indices], self.y[indices], indices == -1)

        def whole(state: Any) -> Any:
            return step(state, self.X, self.y, jnp.zeros(n, dtype=bool))

        self.state = (layers, privatizer.init(layers), rule.init(layers))
        self.step = jax.jit(whole if self.batch_size is None else gathered)
        self.many = jax.jit(lambda state: jax.lax.scan(lambda s, _: (whole(s), None), state, None, length=AT_ONCE)[0])
        return str(jax_privacy.__version__)

    def run(self, *, num_steps: int) -> tuple[float, float, None]:
        """Take so many further steps, or at least that many if they come in hundreds; times are scaled back."""
        wall, busy, taken = time.perf_counter(), time.process_time(), num_steps
        state = self.state
        if self.batch_size is not None:
            sampling = batch_selection.CyclicPoissonSampling(self.batch_size / len(self.y), num_steps)
            for chosen in sampling.batch_iterator(len(self.y)):
                padded = batch_selection.pad_to_multiple_of(chosen.astype(np.int32), MULTIPLE)
                state = self.step(state, padded)
        elif self.at_once:
            times = -(-num_steps // AT_ONCE)
            taken = times * AT_ONCE
            for _ in range(times):
                state = self.many(state)
        else:
            for _ in range(num_steps):
                state = self.step(state)
        self.state = jax.block_until_ready(state)
        scale = num_steps / taken
        return (time.perf_counter() - wall) * scale, (time.process_time() - busy) * scale, None

    def read(self) -> list[float]:
        """Parameters now, in the order of PyTorch."""
        return [float(value) for pair in self.state[0] for part in pair for value in np.asarray(part).ravel()]


if __name__ == "__main__":
    steps = Steps()
    serve({"set_up": steps.set_up, "run": steps.run, "read": steps.read})
