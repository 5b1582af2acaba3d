-- What happens to each request to Triton over gRPC, and to its answer, before it may be sent again.

-- The steps report each request with a `traceparent`, also one that says it is not to be traced.
function envoy_on_request(handle)
  local given = TRACED and handle:headers():get("traceparent")
  if given and not given:match("[13579bdf]$") then
    handle:headers():remove("traceparent")
  end
end

-- Triton tells nobody that a model is still to be loaded; the keeper notes it in COMING.
function envoy_on_response(handle)
  local headers = handle:headers()
  local said = headers:get("grpc-message") or ""
  local model = said:match("^" .. UNKNOWN .. ": '(.-)'")
  local note = model and io.open(COMING)
  if note then
    if note:read("*a"):find('"' .. model .. '"', 1, true) then
      headers:replace("grpc-status", UNAVAILABLE)
      headers:replace("grpc-message", ON_ITS_WAY)
    end
    note:close()
  end
end
