"""`Stream`: frame by frame the answers that a model gives to all frames at once."""

import pytest
import torch
from suites import run_suite
from tolerances import TOLERANCE, error, same

import fernn
from fernn import FlowRNN, Forecaster, Rotation, Stream, Translation
from fernn.models import _fused, _streamed
from fernn.nn import LearnedTransport

MOVING, TURNING = Translation(velocities=[(0, 0), (1, -2), (-1, 1)]), Rotation(count=1, degrees=30)
MODELS = {
    "transported": lambda: Forecaster(flow=MOVING, hidden_channels=16, decoder_layers=1),
    "published": lambda: Forecaster(flow=MOVING, hidden_channels=16, readout="published"),
    "G-RNN": lambda: Forecaster(hidden_channels=16, decoder_layers=0),
    "rotation": lambda: Forecaster(flow=TURNING, hidden_channels=4, decoder_layers=1),
    "mixing": lambda: Forecaster(flow=Translation(radius=1), hidden_channels=4, mixing=1),
    "recurrence": lambda: FlowRNN(1, 16, flow=MOVING),
    "layers": lambda: FlowRNN(1, [3, 4], flow=MOVING, activation="tanh"),
    "norm": lambda: FlowRNN(1, 4, flow=MOVING, norm=True),
    "comoving": lambda: FlowRNN(1, 4, flow=MOVING, frame="comoving"),
    "learned": lambda: FlowRNN(1, 16, flow=MOVING, transport=LearnedTransport(MOVING)),
}


@pytest.fixture(params=MODELS)
def model(request):
    return MODELS[request.param]().eval()


def _video(frames=5, device="cpu"):
    return torch.rand(2, frames, 1, 6, 7, device=device)


def _at_once(model, video):
    """The answers to every beginning of a video."""
    if isinstance(model, FlowRNN):
        return model(video)[0].unbind(1)
    return [model(video[:, : t + 1], horizon=1)[:, 0] for t in range(video.shape[1])]


def _rnn(model):
    return model if isinstance(model, FlowRNN) else model.rnn


def test_answers_are_those_to_all_frames(model):
    video, stream = _video(), Stream(model)
    for answer, want in zip(map(stream, video.unbind(1)), _at_once(model, video), strict=True):
        assert same(answer, want)
        assert not answer.requires_grad


def test_a_stream_can_be_reset(model):
    video, stream = _video(3), Stream(model)
    first, second = [], []
    for answers in (first, second):
        answers += [stream(frame) for frame in video.unbind(1)]
        stream.reset()
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_a_state_is_kept_and_gone_back_to(model):
    video, stream = _video(), Stream(model)
    assert stream.state is None
    for frame in video[:, :3].unbind(1):
        stream(frame)
    kept = stream.state
    assert int(kept.time) == 3
    assert same(kept.lab(), _rnn(model).observe(video[:, :3]).lab())
    want = [stream(frame) for frame in video[:, 3:].unbind(1)]
    stream.state = kept
    assert all(torch.equal(stream(f), w) for f, w in zip(video[:, 3:].unbind(1), want, strict=True))
    other = Stream(model)
    other.state = _rnn(model).observe(video[:, :3])
    assert all(same(other(f), w) for f, w in zip(video[:, 3:].unbind(1), want, strict=True))


def test_forecasts_fed_back_are_the_forecast():
    model, video = MODELS["transported"](), _video()
    stream = Stream(model)
    for frame in video.unbind(1):
        answer = stream(frame)
    answers = [answer]
    for _ in range(2):
        answers.append(stream(answers[-1]))
    assert same(torch.stack(answers, 1), model(video, horizon=3))


def test_a_stream_begins_in_any_mode():
    model, video = MODELS["transported"](), _video(3)
    stream, want = Stream(model), _at_once(model, video)
    with torch.inference_mode():
        stream(video[:, 0])
    stream(video[:, 1])
    assert same(stream(video[:, 2]), want[2])


def test_refuses():
    with pytest.raises(
        TypeError, match="`model` must be a Forecaster or a FlowRNN, got Classifier"
    ):
        Stream(fernn.Classifier(flow=MOVING, hidden_channels=4))
    with pytest.raises(TypeError, match=r"SequenceForecaster, state = model\.sequence\.step"):
        Stream(fernn.models.SequenceForecaster(hidden_channels=4))
    stream, video = Stream(MODELS["recurrence"]()), _video()
    with pytest.raises(ValueError, match=r"`frame` must have 4 axes \[B, C, H, W\]"):
        stream(video)
    stream(video[:, 0])
    with pytest.raises(TypeError, match=r"`frame` must be a torch\.Tensor, got ndarray"):
        stream(video[:, 0].numpy())
    with pytest.raises(ValueError, match=r"`frame` must be like the first one.*another Stream"):
        stream(video[:1, 0])
    training = Stream(MODELS["norm"]().train())
    with pytest.raises(ValueError, match=r"`model` must be in eval mode.*model.eval\(\) first"):
        training(video[:, 0])
    assert int(training.model.layers[0].norm.num_batches_tracked) == 0
    with pytest.raises(TypeError, match="`state` must be a State"):
        stream.state = video
    with pytest.raises(ValueError, match="`state` must hold the batch of the input, 2, got 1"):
        stream.state = MODELS["recurrence"]().observe(video[:1])


def test_the_kernels_answer_the_same_in_the_interpreter():
    pytest.importorskip("triton")
    run_suite("models/stream_suite.py", interpreted=True)


@pytest.mark.gpu
def test_the_kernels_answer_the_same_on_the_device():
    run_suite("models/stream_suite.py", interpreted=False)


@pytest.mark.gpu
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize(
    "name", ["transported", "published", "rotation", "recurrence", "layers", "learned"]
)
def test_answers_are_the_same_from_a_graph(autocast, name, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    model, video = MODELS[name]().eval().cuda(), _video(device="cuda")
    want = _at_once(model, video)
    with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
        stream = Stream(model)
        answers = [stream(frame) for frame in video.unbind(1)]
        kept = stream.state
        again = [stream(frame) for frame in video.unbind(1)]
        odd = stream(video[:, 0]), stream.state, stream(video[:, 1])
    # Whatever autocast held is gone now, and a graph must not need it.
    torch.cuda.empty_cache()
    near = TOLERANCE[torch.bfloat16 if autocast else torch.float32]
    for answer, expected in zip(answers, want, strict=True):
        assert error(answer, expected) < near
    stream.state = kept
    assert all(torch.equal(stream(f), a) for f, a in zip(video.unbind(1), again, strict=True))
    stream(video[:, 0])
    stream.state = odd[1]  # after an odd number of frames, when the buffers have changed places
    assert torch.equal(stream(video[:, 1]), odd[2])


def test_the_kernels_take_plain_recurrences_alone(monkeypatch):
    monkeypatch.setattr("fernn.ops._backend.obstacle", lambda *_, **__: None)
    frame = torch.rand(1, 1, 6, 7)
    fitting = {name for name, make in MODELS.items() if _streamed.fits(make(), frame)}
    assert fitting == {"transported", "published", "G-RNN", "recurrence"}
    model = MODELS["transported"]()
    assert _fused.fits(model, _video())
    model.rnn = MODELS["learned"]()
    assert not _fused.fits(model, _video())
    assert not _streamed.fits(model, frame)


@pytest.mark.gpu
def test_streams_on_two_devices_answer_in_turn():
    """A graph is recorded on a stream of its own device, whichever device came first."""
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two CUDA devices")
    video, streams = _video(3), []
    for index in range(2):
        model = MODELS["transported"]().eval()
        streams.append((_at_once(model, video), Stream(model.to(f"cuda:{index}"))))
    for t, frame in enumerate(video.unbind(1)):
        for index, (want, stream) in enumerate(streams):
            answer = stream(frame.to(f"cuda:{index}"))
            assert answer.device.index == index
            # TF32 may be what the device takes; another device's memory would be far off.
            assert error(answer.cpu(), want[t]) < TOLERANCE[torch.bfloat16]
