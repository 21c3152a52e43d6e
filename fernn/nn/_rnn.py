"""The flow-equivariant recurrence, in the lab frame and in the co-moving frame."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from fernn import _check
from fernn._constant import Constant
from fernn.flows import Flow, Translation
from fernn.groups import PADDINGS, GroupConv
from fernn.nn._conv import FlowConv
from fernn.nn._layer import Kernels, Layer
from fernn.nn._state import FRAMES, State
from fernn.nn._transport import LearnedTransport
from fernn.ops import ACTIVATIONS, BACKENDS, flow_step
from fernn.ops._backend import runs
from fernn.ops.flow_mix import flow_mix, obstacle
from fernn.ops.flow_step import choose
from fernn.ops.slice_conv import obstacle as slice_obstacle


class FlowRNN(nn.Module):
    """h_{t+1}(ν) = σ(ψ_1(ν)·[W ⋆ h_t](ν) + U ⋆ f_t), one recurrence in every moving frame.

    Shapes: video [B, T, C, *X] → states [B, T, V, K, *X] in lab coordinates, last State;
    `states[:, i]` is h_{i+1}. On a group with orientations K counts hidden_channels·order.

    `frame="comoving"` computes the same function in coordinates that move with each ν: inputs are
    counter-flowed, k_{t+1}(ν) = σ(W ⋆ k_t(ν) + U ⋆ [ψ_{−t}(ν)·f_t]), and the state never moves. It
    asks nothing of W and U, so it takes any flow. The lab frame needs W to commute with the flow.

    - Several `hidden_channels` stack layers; each reads the new state of the one below, per slice.
    - `activation` is a name or any pointwise function.
    - `mixing` lets velocities interact, through a kernel of that radius or "full" (lab frame only).
    - `norm` puts batch-norm and ReLU after W.
    - `encoder` replaces U by a module [N, C, *X] → [N, K, *X]; in the lab frame it must commute
      with the flow.
    - `transport` replaces ψ_1 by a module on [B, V, K, *X] (lab frame only).
    - `backend` is that of `fernn.ops.flow_step`. "triton" raises where no kernel takes a step: with
      a `transport` that is no LearnedTransport, zeros outside, a flow that is no Translation, a
      `norm` of other signals than images, and wherever velocities mix but not by `flow_mix`. "auto"
      runs plain torch there.

    One zero velocity, `Translation(radius=0)`, is the G-RNN.

    Batch-norm, in `norm` or in an encoder, takes other statistics in other frames while it trains;
    the theorem and the equality of the frames are statements about eval mode then.

    >>> rnn = FlowRNN(1, 8, flow=Translation(radius=1))
    >>> states, last = rnn(torch.zeros(2, 5, 1, 9, 9))
    >>> states.shape
    torch.Size([2, 5, 9, 8, 9, 9])
    """

    features = True  # states carry the orientations of the flow's group

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int | Sequence[int],
        *,
        flow: Flow,
        frame: str = "lab",
        kernel_size: int = 3,
        activation: str | Callable[[Tensor], Tensor] = "relu",
        padding: str | None = None,
        mixing: int | str | None = None,
        norm: bool = False,
        encoder: nn.Module | None = None,
        transport: nn.Module | None = None,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        _check.kind("flow", flow, Flow, "Translation(radius=2)")
        given = getattr(hidden_channels, "tolist", lambda: hidden_channels)()  # an array, a tensor
        widths = [*given] if isinstance(given, Sequence) else [given]
        cyclic = isinstance(flow, Translation)
        padding = ("circular" if cyclic else "zeros") if padding is None else padding
        _check.choice("frame", frame, FRAMES)
        _check.choice("backend", backend, BACKENDS)
        _check.choice("padding", padding, PADDINGS)
        _check.count("in_channels", in_channels, least=1)
        if not widths:
            raise ValueError("`hidden_channels` must name at least one layer, got none.")
        named = isinstance(activation, str) and activation in ACTIVATIONS
        if isinstance(activation, type) or not (callable(activation) or named):
            raise ValueError(
                f"`activation` must be one of {', '.join(map(repr, ACTIVATIONS))} or a pointwise "
                f"function such as torch.nn.GELU(), got {activation!r}."
            )
        if frame == "lab":
            flow.check_convolution(padding)
        elif flow.group.order > 1:
            flow.check_features(flow.velocities.tolist())
        if frame == "comoving" and (mixing is not None or transport is not None):
            option = "mixing" if mixing is not None else "transport"
            raise ValueError(
                f'`frame` must be "lab" with `{option}`, got "comoving": it acts between frames '
                "that move apart, so it is local in lab coordinates alone."
            )
        if isinstance(transport, LearnedTransport) and transport.flow != flow:
            raise ValueError(
                f"`transport` must be of the recurrence's flow, {flow!r}, got one of "
                f"{transport.flow!r}."
            )
        self.flow, self.frame, self.in_channels = flow, frame, in_channels
        self.activation, self.backend, self.transport = activation, backend, transport
        self.layers = nn.ModuleList(
            Layer(
                source,
                width,
                flow=flow,
                kernel_size=kernel_size,
                padding=padding,
                mixing=mixing,
                norm=norm,
                encoder=encoder if index == 0 else None,
                first=index == 0,
            )
            for index, (source, width) in enumerate(
                zip([in_channels, *widths], widths, strict=False)
            )
        )
        on_torus = cyclic and padding == "circular"
        # U may act before frames are moved apart where it commutes with the flow, once for all ν.
        self._input_first = frame == "lab" or (on_torus and encoder is None)
        self._learned = type(transport) is LearnedTransport  # a subclass need not be a convolution
        plain, bare = on_torus and mixing is None, transport is None
        self._stepwise = plain and not norm and bare
        self._sliced = plain and not norm and self._learned  # κ_ν may act before W, which commutes
        self._normed = plain and norm and flow.group.dim == 2 and (bare or self._learned)
        self._obstacle = self._layers()[0].obstacle(flow, transport)
        velocities = flow.velocities
        moves = frame == "lab" and transport is None
        self._shift = Constant(velocities if moves else torch.zeros_like(velocities))

    def forward(self, video: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        states = []
        for last in self._scan(video, state, self.kernels()):
            states.append(last.lab())
        return torch.stack(states, 1), last

    def observe(
        self, video: Tensor, state: State | None = None, kernels: list[Kernels] | None = None
    ) -> State:
        """The state after a whole video, without the states before it."""
        return deque(self._scan(video, state, kernels or self.kernels()), maxlen=1).pop()

    def step(
        self, frame: Tensor, state: State | None = None, kernels: list[Kernels] | None = None
    ) -> State:
        """h_t → h_{t+1} on one frame [B, C, *X]; without a state, h_0 = 0.

        A loop over many frames passes `kernels()`, so that they are expanded once.
        """
        self._check_input("frame", frame, sequence=False)
        kernels = self.kernels() if kernels is None else kernels
        return self._advance(self._before_motion(frame[:, None], kernels), state, kernels)

    def kernels(self) -> list[Kernels]:
        """The dense kernels of every layer, expanded from their parameters."""
        return [layer.kernels() for layer in self._layers()]

    def init_state(self, *h0: Tensor) -> State:
        """The state at time 0 from one h_0 a layer, [B, V, K, *X] in lab coordinates.

        The theorem asks that h_0 be constant in ν and fixed by the flow; zero is, and is what
        `forward` and `step` take where no state is given.
        """
        if len(h0) != len(self.layers):
            raise ValueError(
                f"`h0` must be one tensor a layer, {len(self.layers)} here, got {len(h0)}."
            )
        for layer, h in zip(self._layers(), h0, strict=True):
            rank = 3 + self.flow.group.dim
            _check.signal("h0", h, rank=rank, layout=_check.layout("B, V, K", self.flow.group.dim))
            if h.shape[1:3] != (len(self.flow), layer.channels):
                raise ValueError(
                    f"`h0` must be lifted to {len(self.flow)} velocities of {layer.channels} "
                    f"channels, got shape {tuple(h.shape)}."
                )
        if self.frame == "comoving":
            h0 = tuple(self.flow.transport(h, 1) for h in h0)
        return self._state(h0, torch.zeros((), dtype=torch.long, device=h0[0].device))

    def _scan(self, video: Tensor, state: State | None, kernels: list[Kernels]) -> Iterator[State]:
        self._check_input("video", video, sequence=True)
        alike = False
        for x in self._before_motion(video, kernels).split(1, dim=1):
            new = self._advance(x, state, kernels, alike)
            # After one frame from h_0 = 0 a slice stands for all, and no caller holds the others.
            alike, state = state is None, new
            yield state

    def _before_motion(self, frames: Tensor, kernels: list[Kernels]) -> Tensor:
        """U ⋆ f for all frames at once where U commutes with the flow, else f: [B, T, ., *X]."""
        return self._layers()[0].drive(frames, kernels[0][0]) if self._input_first else frames

    def _drive(self, x: Tensor, state: State | None, kernel: Tensor | None) -> Tensor:
        """What slice ν is driven by: [B, 1 or V, K, *X]. At time 0 every frame is the lab's."""
        if self.frame == "comoving" and state is not None:
            x = self.flow.transport(x, -state.time, features=self._input_first)
        return x if self._input_first else self._layers()[0].drive(x, kernel)

    def _advance(
        self, x: Tensor, state: State | None, kernels: list[Kernels], alike: bool = False
    ) -> State:
        """One step; `alike` says that the first slice of the first layer stands for all."""
        if state is None:
            time = torch.zeros((), dtype=torch.long, device=x.device)
        else:
            self._check_state(state, x)
            time = state.time
        tensors: list[Tensor] = []
        for index, (layer, (inner, kernel)) in enumerate(zip(self._layers(), kernels, strict=True)):
            drive = self._drive(x, state, inner) if index == 0 else layer.drive(tensors[-1], inner)
            h = None if state is None else state.tensors[index]
            tensors.append(self._recur(layer, h, drive, kernel, alike and index == 0))
        return self._state(tuple(tensors), time + 1)

    def _recur(
        self, layer: Layer, h: Tensor | None, drive: Tensor, kernel: Tensor, alike: bool
    ) -> Tensor:
        shape = (drive.shape[0], len(self.flow), *drive.shape[2:])
        shift, near = self._shift.on(drive.device), layer.recurrent
        name = self.activation if isinstance(self.activation, str) else "identity"
        if alike and layer.norm is None and self.transport is None:
            assert h is not None
            h = h[:, :1]  # batch-norm counts slices; a transport may treat them differently
        if (self._stepwise or self._sliced) and h is not None:
            if self._sliced:
                h = self._transported(h)
            out = flow_step(h, kernel, drive, shift, name, backend=self.backend)
            return out if name == self.activation else self._sigma(out)
        fused = self._fused(near, drive, kernel, shift)
        linear = layer.norm is None and (self.transport is None or self._learned)
        if h is None and linear:  # W ⋆ 0 = 0
            return self._sigma(drive).expand(shape)
        h = drive.new_zeros(shape) if h is None else h
        if isinstance(near, FlowConv):
            if fused:
                neighbours = near._neighbours.on(h.device)
                out = flow_mix(h, near.weight, neighbours, drive, shift, name)
                return out if name == self.activation else self._sigma(out)
            h = h.expand(shape)  # velocities that mix are summed
        if fused and self._normed:
            return self._normed_step(layer, h, drive, kernel, shift)
        return self._sigma(self._transported(layer.recur(h, kernel)) + drive)

    def _normed_step(
        self, layer: Layer, h: Tensor, drive: Tensor, kernel: Tensor, shift: Tensor
    ) -> Tensor:
        from fernn.ops.flow_sigma import flow_sigma  # Triton is imported by those who use it alone

        name = self.activation if isinstance(self.activation, str) else "identity"
        out = layer.recur_on_gpu(h, kernel)
        out = self._transported(out) if self._learned else out
        out = flow_sigma(out, drive, shift, name)
        return out if name == self.activation else self._sigma(out)

    def _transported(self, h: Tensor) -> Tensor:
        """ψ_1(ν)·h(ν), or what `transport` has in its place."""
        if self.transport is not None:
            options = (self.backend,) if self._learned else ()
            return cast(Tensor, self.transport(h, *options))
        return self.flow.transport(h, 1) if self.frame == "lab" else h

    def _fused(
        self, conv: GroupConv | FlowConv, drive: Tensor, kernel: Tensor, shift: Tensor
    ) -> bool:
        """Whether a kernel takes convolution, transport and σ; raise where one is named in vain."""
        if self._stepwise or self._sliced or self._normed:
            if self._learned:
                runs(self.backend, slice_obstacle(drive))
            return choose(self.backend, drive, kernel, shift) == "triton"
        why = self._obstacle
        if why is None and isinstance(conv, FlowConv):
            why = obstacle(drive, conv.weight)
        return runs(self.backend, why)

    def _sigma(self, x: Tensor) -> Tensor:
        sigma = self.activation
        return ACTIVATIONS[sigma](x) if isinstance(sigma, str) else sigma(x)

    def _state(self, tensors: tuple[Tensor, ...], time: Tensor) -> State:
        return State(tensors, time, self.frame, self.flow, features=True)

    def _layers(self) -> list[Layer]:
        return [cast(Layer, layer) for layer in self.layers]

    def _check_input(self, name: str, x: Tensor, *, sequence: bool) -> None:
        layout = _check.layout("B, T, C" if sequence else "B, C", self.flow.group.dim)
        if sequence and isinstance(x, Tensor) and x.ndim == 4 + self.flow.group.dim:
            raise ValueError(
                f"`{name}` must be {layout}, got shape {tuple(x.shape)}, one axis too many for "
                f"{self.flow!r}. Where the axis is V, stack layers inside one FlowRNN: "
                "hidden_channels=[16, 16]; where it is one of space, take a flow that has it."
            )
        rank = 2 + sequence + self.flow.group.dim
        _check.signal(name, x, rank=rank, layout=layout, channels=self.in_channels)
        _check.same_place(name, x, next(self.parameters()))
        self.flow.check_canvas(x)

    def _check_state(self, state: State, x: Tensor) -> None:
        if not isinstance(state, State):
            raise TypeError(
                f"`state` must be a State, got {type(state).__name__}. `forward` returns (states, "
                "last): pass `last`. A tensor h_0 becomes a state by `init_state`."
            )
        if state.frame != self.frame or state.flow != self.flow:
            raise ValueError(
                f"`state` must come from this recurrence, frame={self.frame!r} and {self.flow!r}, "
                f"got frame={state.frame!r} and {state.flow!r}."
            )
        batch, held = x.shape[0], state.tensors[0].shape[0]  # shape: len() would fix it in a trace
        if held != batch:
            raise ValueError(f"`state` must hold the batch of the input, {batch}, got {held}.")
        wanted = [(len(self.flow), layer.channels, *x.shape[3:]) for layer in self._layers()]
        if [tuple(h.shape[1:]) for h in state.tensors] != [tuple(shape) for shape in wanted]:
            raise ValueError(
                f"`state` must hold one [B, V, K, *X] a layer, {wanted} without B, "
                f"got {[tuple(h.shape[1:]) for h in state.tensors]}."
            )
        _check.same_place("state", state.tensors[0], next(self.parameters()))

    def extra_repr(self) -> str:
        return f"{self.in_channels}, flow={self.flow!r}, frame={self.frame!r}"
