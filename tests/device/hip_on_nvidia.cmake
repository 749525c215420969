# libgpusnap-hip.so over CUDA, and copies of the device programs beside it.
set(folder ${PROJECT_BINARY_DIR}/hip_on_nvidia)
set(kernels ${PROJECT_BINARY_DIR}/kernels/gpu_kernels.cuda.o)
set_source_files_properties(${kernels} PROPERTIES GENERATED TRUE EXTERNAL_OBJECT TRUE)
list(TRANSFORM GPUSNAP_GPU_SOURCES PREPEND ${PROJECT_SOURCE_DIR}/kernels/ OUTPUT_VARIABLE sources)

add_library(hip_on_nvidia MODULE ${sources} hip_on_nvidia.c ${kernels})
add_dependencies(hip_on_nvidia gpusnap_cuda)
set_target_properties(hip_on_nvidia PROPERTIES
	OUTPUT_NAME gpusnap-hip LIBRARY_OUTPUT_DIRECTORY ${folder})
target_compile_definitions(hip_on_nvidia PRIVATE GSN_VENDOR_HIP __HIP_PLATFORM_NVIDIA__)
target_compile_options(hip_on_nvidia PRIVATE -fms-extensions -Wno-pedantic
	-include ${CMAKE_CURRENT_SOURCE_DIR}/hip_on_nvidia.h)
target_include_directories(hip_on_nvidia PRIVATE ${PROJECT_SOURCE_DIR})
target_include_directories(hip_on_nvidia SYSTEM PRIVATE
	${GPUSNAP_HIP_NVIDIA_INCLUDE} ${CUDAToolkit_INCLUDE_DIRS})
target_link_libraries(hip_on_nvidia PRIVATE gpusnap_flags gpusnap_static CUDA::cudart_static
	-Wl,-Bstatic -lstdc++ -Wl,-Bdynamic)
target_link_options(hip_on_nvidia PRIVATE -Wl,--as-needed -Wl,--no-undefined
	-Wl,--version-script=${PROJECT_SOURCE_DIR}/kernels/device_module.map)

foreach(name conformance kernels_match random_operations)
	set(target test_device_${name})
	add_custom_command(OUTPUT ${folder}/${target}
		COMMAND ${CMAKE_COMMAND} -E copy $<TARGET_FILE:${target}> ${folder}/${target}
		DEPENDS ${target} VERBATIM)
	list(APPEND programs ${folder}/${target})
	gpusnap_script(device hip_${name} ${folder}/${target} hip:0)
	set_property(TEST device.hip_${name} PROPERTY RUN_SERIAL TRUE)
endforeach()
add_custom_target(hip_on_nvidia_programs ALL DEPENDS ${programs} hip_on_nvidia)
