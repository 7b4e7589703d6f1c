"""The network as rows and lanes: roles against the verdict, wires by hand."""

from graphs import OP, Net, classifier
from hypothesis import given
from hypothesis import strategies as st

from sparsetorch.report.network import Role, Row, rows
from sparsetorch.report.page.charts import nice_ticks
from sparsetorch.report.page.figure import Table, text
from sparsetorch.report.page.network_figure import lanes, network_figure
from sparsetorch.tflite import Model, encode
from sparsetorch.xnnpack import verify


def described(model: Model) -> list[Row]:
    return rows(model, verify(model).reasons)


def test_an_eligible_network_has_one_entry_one_exit_and_its_sparse_products() -> None:
    model = classifier()
    encode(model)
    found = described(model)
    assert sum(row.role is Role.SPARSE for row in found) == verify(model).expected_spmm == 9
    assert [row.name for row in found if row.role is Role.ENTRY] == ["stem"]
    (leaving,) = [row for row in found if row.role is Role.EXIT]
    assert leaving.operator == "MEAN"
    between = found[[row.role for row in found].index(Role.ENTRY) : found.index(leaving)]
    assert all(row.channels_first for row in between)
    assert not any(row.channels_first for row in found if row not in between)
    assert {row.role for row in between} == {Role.ENTRY, Role.SPARSE, Role.INSIDE}
    assert [row.operator for row in (found[0], found[-2], found[-1])] == ["input", "FULLY_CONNECTED", "output"]
    assert "DENSIFY" not in {row.operator for row in found}
    assert {row.operator for row in found if row.operator.startswith("DEPTHWISE")} == {
        "DEPTHWISE_CONV_2D 3x3", "DEPTHWISE_CONV_2D 3x3 /2",
    }  # fmt: skip


def test_without_encoding_the_cluster_could_be_and_is_not() -> None:
    found = described(classifier())
    roles = {row.role for row in found}
    assert Role.CANDIDATE in roles
    assert roles.isdisjoint({Role.SPARSE, Role.INSIDE, Role.ENTRY, Role.EXIT})
    assert not any(row.channels_first for row in found)


def test_reasons_stand_where_their_operator_is() -> None:
    model = classifier(middle=lambda net, x: net.pool(OP.MAX_POOL_2D, x, 2), size=64)
    encode(model)
    verdict = verify(model)
    placed = [row for row in rows(model, verdict.reasons) if row.reasons]
    assert placed
    assert all(row.role in (Role.BREAKER, Role.UNSAFE) for row in placed)
    assert {reason for row in placed for reason in row.reasons} == {
        reason for reason in verdict.reasons if reason.operator
    }
    pool = next(row for row in placed if row.operator == "MAX_POOL_2D")
    assert "unsupported-operator" in {reason.rule for reason in pool.reasons}


def test_what_would_be_wrong_is_unsafe() -> None:
    model = classifier(same=True)  # SAME at stride 2 behind a well-formed stem
    encode(model)
    assert verify(model).unsafe
    assert any(row.role is Role.UNSAFE for row in described(model))


def row(*producers: int) -> Row:
    return Row("ADD", "", (1,), Role.OUTSIDE, producers)


def test_lanes_by_hand() -> None:
    assert lanes([row(), row(0), row(1)]) == [0, 0, 0]
    # A residual: 0 is read by 1 and by 3, so that 1 and 2 step aside, and 3 comes back.
    assert lanes([row(), row(0), row(1), row(0, 2), row(3)]) == [0, 1, 1, 0, 0]
    # A squeeze-excite inside a residual: three values at once.
    assert lanes([row(), row(0), row(1), row(2), row(1, 3), row(0, 4)]) == [0, 1, 2, 2, 1, 0]
    # Two inputs meet.
    assert lanes([row(), row(), row(0, 1)]) == [0, 1, 0]
    assert lanes([]) == []


@st.composite
def networks(draw: st.DrawFn) -> list[Row]:
    size = draw(st.integers(1, 25))
    return [
        row(*sorted(draw(st.sets(st.integers(0, number - 1), max_size=3)) if number else ())) for number in range(size)
    ]


@given(networks())
def test_no_wire_runs_through_an_operator_that_does_not_read_it(made: list[Row]) -> None:
    found = lanes(made)
    assert len(found) == len(made)
    for reader, one in enumerate(made):
        for producer in one.producers:
            between = range(producer + 1, reader)
            assert all(found[other] != found[producer] for other in between)


@given(networks())
def test_any_network_can_be_drawn(made: list[Row]) -> None:
    figure = network_figure(made)
    assert figure.body.count('<path class="wire') == sum(len(one.producers) for one in made)
    assert sum(height for _, height in figure.views) == figure.height


def test_a_network_as_large_as_mobilenet_is_cut_into_columns_between_rows() -> None:
    net = Net()
    x = net.stem(net.input(64, 3), 8)
    for _ in range(17):
        x = net.block(x, 8)
    net.output(net.dense(net.mean(net.pointwise(x, 32)), 10))
    model = net.model()
    encode(model)
    figure = network_figure(described(model))
    assert len(figure.views) == 3
    assert all(height % 30 == 0 for _, height in figure.views)
    assert max(height for _, height in figure.views) - min(height for _, height in figure.views) <= 60


def test_text_from_files() -> None:
    assert text("a<b>&\"'\x00\x1b") == "a&lt;b&gt;&amp;&quot;&#x27;  "
    assert text("features.12.conv", 8) == "feature…"
    assert text("features.12.conv", 8, keep_end=True) == "…12.conv"
    assert Table(("a", "b"), [("=1+1", -2.5), ("@x", None)]).to_csv() == "a,b\n'=1+1,-2.5\n'@x,\n"


def test_ticks_by_hand() -> None:
    assert nice_ticks(0, 1) == [0, 0.2, 0.4, 0.6, 0.8, 1]
    assert nice_ticks(0, 7) == [0, 2, 4, 6]
    assert nice_ticks(0, 800, 5) == [0, 200, 400, 600, 800]


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_ticks_lie_within(low: float, span: float) -> None:
    ticks = nice_ticks(low, low + span)
    assert 1 <= len(ticks) <= 7
    assert all(low - 1e-6 * span <= tick <= low + span * (1 + 1e-6) for tick in ticks)
